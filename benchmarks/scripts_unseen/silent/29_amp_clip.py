# EXPECT: sick
# FAULT: gradients clipped before they are unscaled
# ONSET: 1
# SAYS: unscale|clip
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(15)
device = "cpu"

net = nn.Sequential(
    nn.Conv1d(4, 24, 5, padding=2),
    nn.ReLU(),
    nn.MaxPool1d(2),
    nn.Conv1d(24, 24, 5, padding=2),
    nn.ReLU(),
    nn.AdaptiveAvgPool1d(1),
    nn.Flatten(),
    nn.Linear(24, 5),
).to(device)
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
scaler = torch.amp.GradScaler(device)
templates = torch.randn(5, 4, 32)
MAX_NORM = 1.0

for step in range(120):
    y = torch.randint(0, 5, (32,))
    x = torch.roll(templates, int(torch.randint(0, 32, (1,))), dims=2)[y] + 0.4 * torch.randn(32, 4, 32)
    opt.zero_grad(set_to_none=True)
    with torch.autocast(device_type=device, dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(net(x), y)
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), MAX_NORM)
    scaler.step(opt)
    scaler.update()
    if step % 20 == 0:
        print(f"step {step}: loss {loss.item():.4f} scale {scaler.get_scale():.0f}")
