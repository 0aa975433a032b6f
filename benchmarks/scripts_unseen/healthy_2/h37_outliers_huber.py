# expect: healthy
# fault: none
# note: regression with heavy-tailed targets under a Huber loss; spikes of the loss are the data's.
import torch
from torch import nn

torch.manual_seed(37)
net = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
sch = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=40)
for s in range(240):
    x = torch.randn(64, 6)
    y = 2 * x[:, 0] + x[:, 1] * x[:, 2]
    y = y + torch.where(torch.rand(64) < 0.03, 15 * torch.randn(64), 0.1 * torch.randn(64))
    loss = nn.functional.huber_loss(net(x)[:, 0], y, delta=1.0)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sch.step(loss.item())
    if s % 20 == 0:
        print(s, round(loss.item(), 4))
