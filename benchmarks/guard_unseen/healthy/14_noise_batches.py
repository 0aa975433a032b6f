# Healthy: every 25th batch is pure noise on purpose (a regulariser that the authors want), AdamW, cosine.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
g = torch.Generator().manual_seed(14)
c = torch.randn(6, 10, generator=g) * 1.5
y = torch.randint(0, 6, (5000,), generator=g)
x = c[y] + torch.randn(5000, 10, generator=g)
torch.manual_seed(args.seed)
net = nn.Sequential(nn.Linear(10, 64), nn.GELU(), nn.Linear(64, 6))
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 2500)
for step in range(2500):
    i = torch.randint(0, 4500, (32,))
    xb, yb = (torch.randn(32, 10), torch.randint(0, 6, (32,))) if step % 25 == 24 else (x[i], y[i])
    loss = nn.functional.cross_entropy(net(xb), yb)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 250 == 0:
        print(step, loss.item())
net.eval()
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(net(x[4500:]), y[4500:]).item())
