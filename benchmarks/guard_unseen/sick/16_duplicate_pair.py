# Metric learning with a Euclidean triplet loss, Adagrad. Fault: anchor and positive of step 333 are the same item:
# the derivative of sqrt(0).
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
g = torch.Generator().manual_seed(111)
classes = torch.randn(30, 12, generator=g)


def item(c):
    return classes[c] + 1.6 * torch.randn(len(c), 12, generator=g)


def triplets(n):
    c = torch.randint(0, 30, (n,), generator=g)
    other = (c + torch.randint(1, 30, (n,), generator=g)) % 30
    return item(c), item(c), item(other)


A, P, N = triplets(8000)
held = triplets(3000)


def loss_of(net, a, p, n):
    a, p, n = net(a), net(p), net(n)
    dp = (a - p).pow(2).sum(1).sqrt()
    dn = (a - n).pow(2).sum(1).sqrt()
    return torch.relu(dp - dn + 1.0).mean()


torch.manual_seed(args.seed)
net = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 8))
opt = torch.optim.Adagrad(net.parameters(), lr=0.02)
for step in range(600):
    i = torch.randint(0, 8000, (64,))
    a, p, n = A[i], P[i].clone(), N[i]
    if step == 333 and not args.twin:
        p[9] = a[9]
    loss = loss_of(net, a, p, n)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 60 == 0:
        print("triplet loss", step, round(loss.item(), 4))
net.eval()
with torch.no_grad():
    print("final:", loss_of(net, *held).item())
