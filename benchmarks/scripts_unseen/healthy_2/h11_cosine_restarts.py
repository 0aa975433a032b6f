# expect: healthy
# fault: none
# note: warm restarts on purpose: the rate jumps back to its peak every 60 steps.
import torch
from torch import nn

torch.manual_seed(10)
net = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
opt = torch.optim.AdamW(net.parameters(), lr=4e-3)
sch = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=60, eta_min=1e-5)
for s in range(240):
    x = torch.randn(64, 10)
    y = torch.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3]
    loss = nn.functional.mse_loss(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sch.step()
    if s % 20 == 0:
        print(s, f"{loss.item():.4f} lr {sch.get_last_lr()[0]:.1e}")
