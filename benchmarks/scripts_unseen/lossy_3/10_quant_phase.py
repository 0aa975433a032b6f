# expect: sick
# fault: weights rounded coarsely in mid run (8-bit rounding with a bad scale)
# onset_step: 150
# says: (?i)(loss|gradient|precision|cast|weights?|progress|spike|diverg|quanti|round)
# note: a quantisation-aware phase begins at step 150, but the scale is 0.5 instead of absmax/127, so nearly all weights round to 0.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(10)
net = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 5))
w = torch.randn(16, 5)


def fake_quant(model, scale):
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 2:
                p.copy_((p / scale).round().clamp(-127, 127) * scale)


opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for step in range(230):
    if step >= 150:
        fake_quant(net, 0.5)
    x = torch.randn(64, 16)
    y = (torch.tanh(x) @ w).argmax(1)
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(step, f"{loss.item():.4f}")
