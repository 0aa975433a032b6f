# Healthy: dropout of 0.6 everywhere, small batches, RMSprop: a rough loss that falls slowly.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
g = torch.Generator().manual_seed(13)
c = torch.randn(8, 12, generator=g)
y = torch.randint(0, 8, (4000,), generator=g)
x = c[y] + torch.randn(4000, 12, generator=g)
torch.manual_seed(args.seed)
net = nn.Sequential(
    nn.Linear(12, 96), nn.ReLU(), nn.Dropout(0.6), nn.Linear(96, 96), nn.ReLU(), nn.Dropout(0.6), nn.Linear(96, 8)
)
opt = torch.optim.RMSprop(net.parameters(), lr=5e-4)
for step in range(2000):
    net.train()
    i = torch.randint(0, 3500, (8,))
    loss = nn.functional.cross_entropy(net(x[i]), y[i])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 200 == 0:
        net.eval()
        with torch.no_grad():
            print("step", step, "val", nn.functional.cross_entropy(net(x[3500:]), y[3500:]).item())
net.eval()
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(net(x[3500:]), y[3500:]).item())
