# MLP with slow BatchNorm statistics, AdamW. Fault: the batch of step 560 is x3e3, finite: weights hardly move,
# the statistics of evaluation do.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
g = torch.Generator().manual_seed(181)
w = torch.randn(15, 4, generator=g) / 2


def draw(n):
    x = torch.randn(n, 15, generator=g)
    return x, (x @ w + 0.7 * torch.randn(n, 4, generator=g)).argmax(1)


x, y = draw(8000)
hx, hy = draw(3000)
torch.manual_seed(args.seed)
net = nn.Sequential(
    nn.BatchNorm1d(15, momentum=0.01), nn.Linear(15, 48), nn.BatchNorm1d(48, momentum=0.01), nn.ReLU(), nn.Linear(48, 4)
)
opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
for epoch in range(5):
    perm = torch.randperm(8000)
    for j in range(125):
        step = epoch * 125 + j
        i = perm[j * 64 : j * 64 + 64]
        xb = x[i]
        if step == 560 and not args.twin:
            xb = xb.clone()
            xb[:32] *= 3e3
        loss = nn.functional.cross_entropy(net(xb), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("epoch", epoch, "last loss", loss.item())
net.eval()
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(net(hx), hy).item())
