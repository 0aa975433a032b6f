# Regression from a stream, AdamW, EMA of the weights. Fault: from step 100 on every 50th batch has a NaN.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
import copy

g = torch.Generator().manual_seed(191)
w = torch.randn(9, 5, generator=g) / 2


def draw(n):
    x = torch.randn(n, 9, generator=g)
    return x, torch.cos(x @ w).sum(1) + 0.4 * torch.randn(n, generator=g)


x, y = draw(8000)
hx, hy = draw(2000)
torch.manual_seed(args.seed)
net = nn.Sequential(nn.Linear(9, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1), nn.Flatten(0))
ema = copy.deepcopy(net).requires_grad_(False)
opt = torch.optim.AdamW(net.parameters(), lr=2e-3)


def stream():
    n = 0
    while True:
        i = torch.randint(0, 8000, (64,))
        xb = x[i].clone()
        if n >= 100 and n % 50 == 0 and not args.twin:
            xb[0, n % 9] = float("nan")
        yield n, xb, y[i]
        n += 1


for step, xb, yb in stream():
    if step == 1100:
        break
    loss = nn.functional.mse_loss(net(xb), yb)
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for e, p in zip(ema.parameters(), net.parameters()):
            e.lerp_(p, 0.02)
    if step % 100 == 0:
        print("step", step, "loss", loss.item())
ema.eval()
with torch.no_grad():
    print("final:", nn.functional.mse_loss(ema(hx), hy).item())
