# expect: sick
# fault: weight decay far too large
# onset_step: 0
# says: (?i)(weight.?decay|\bl2\b|regulari[sz]|shrink|shrunk|weights?.{0,40}(collaps|to(ward)? (0|zero)|vanish))
# note: AdamW's positional arguments are (params, lr, betas, eps, weight_decay); the config swaps lr-scaled 5e-4 for weight_decay=5.0 ("5e-0" typed for 5e-4); weights shrink faster than they learn.
import torch
from torch import nn

torch.set_num_threads(1)

HP = {
    "lr": 1e-2,
    "weight_decay": 5e-0,
    "steps": 180,
    "hidden": 48,
}


def spectrogram(n):
    y = torch.randint(0, 6, (n,))
    t = torch.arange(40.0)
    phase = torch.rand(n, 1) * 6.28
    x = torch.sin(t * (0.3 + 0.25 * y[:, None]) + phase) + 0.5 * torch.randn(n, 40)
    return x[:, None], y


torch.manual_seed(23)
net = nn.Sequential(
    nn.Conv1d(1, 16, 7, padding=3),
    nn.ReLU(),
    nn.MaxPool1d(2),
    nn.Conv1d(16, 24, 5, padding=2),
    nn.ReLU(),
    nn.AdaptiveMaxPool1d(1),
    nn.Flatten(),
    nn.Linear(24, HP["hidden"]),
    nn.ReLU(),
    nn.Linear(HP["hidden"], 6),
)
opt = torch.optim.AdamW(net.parameters(), lr=HP["lr"], weight_decay=HP["weight_decay"])
for s in range(HP["steps"]):
    x, y = spectrogram(32)
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if s % 20 == 0:
        print("step", s, "loss", f"{loss.item():.4f}")
x, y = spectrogram(300)
print("final loss", nn.functional.cross_entropy(net(x), y).item())
