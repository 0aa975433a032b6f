# Healthy: cosine with warm restarts (SGDR) on a small CNN with BatchNorm; the loss rises at each restart.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
g = torch.Generator().manual_seed(7)
proto = torch.randn(5, 1, 8, 8, generator=g)
y = torch.randint(0, 5, (3000,), generator=g)
x = proto[y] + 2.5 * torch.randn(3000, 1, 8, 8, generator=g)
torch.manual_seed(args.seed)
net = nn.Sequential(
    nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 5)
)
opt = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.9)
sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=100, T_mult=2)
for step in range(1500):
    i = torch.randint(0, 2500, (32,))
    loss = nn.functional.cross_entropy(net(x[i]), y[i])
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 100 == 0:
        print("step", step, "loss", loss.item())
net.eval()
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(net(x[2500:]), y[2500:]).item())
