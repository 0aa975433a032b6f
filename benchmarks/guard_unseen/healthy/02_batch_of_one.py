# Healthy: batch size 1, SGD, classification with 10 % wrong labels.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
g = torch.Generator().manual_seed(2)
c = torch.randn(5, 8, generator=g) * 1.5
x = torch.randn(4000, 8, generator=g)
y = torch.randint(0, 5, (4000,), generator=g)
x = x + c[y]
wrong = torch.rand(4000, generator=g) < 0.1
y[wrong] = torch.randint(0, 5, (int(wrong.sum()),), generator=g)
torch.manual_seed(args.seed)
net = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 5))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for n, i in enumerate(torch.randperm(3500).tolist()):
    loss = nn.functional.cross_entropy(net(x[i : i + 1]), y[i : i + 1])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if n % 500 == 0:
        print("sample", n, "loss", loss.item())
net.eval()
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(net(x[3500:]), y[3500:]).item())
