# expect: healthy
# fault: none
# note: siamese net with shared weights and a margin loss, where many pairs in time have zero loss.
import torch
from torch import nn

torch.manual_seed(30)
C = torch.randn(10, 20)
tower = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 8))
opt = torch.optim.Adam(tower.parameters(), lr=1e-3)
for s in range(220):
    ya = torch.randint(0, 10, (64,))
    same = torch.rand(64) < 0.5
    yb = torch.where(same, ya, (ya + torch.randint(1, 10, (64,))) % 10)
    a, b = (tower(C[y] + 0.6 * torch.randn(64, 20)) for y in (ya, yb))
    d = (a - b).pow(2).sum(1).add(1e-8).sqrt()
    loss = torch.where(same, d**2, (2.0 - d).clamp(min=0) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if s % 20 == 0:
        print(s, round(loss.item(), 4))
