# Forecast from sensors, Adam. Fault: one sensor is dead from step 600 on: every batch has NaN. Nothing can help.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
g = torch.Generator().manual_seed(201)
w = torch.randn(8, 1, generator=g) / 2


def draw(n):
    x = torch.randn(n, 8, generator=g)
    return x, torch.sin(x @ w) + 0.2 * torch.randn(n, 1, generator=g)


x, y = draw(8000)
hx, hy = draw(2000)
torch.manual_seed(args.seed)
net = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 1))
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for step in range(1000):
    i = torch.randint(0, 8000, (32,))
    xb = x[i].clone()
    if step >= 600 and not args.twin:
        xb[:, 3] = float("nan")
    loss = nn.functional.mse_loss(net(xb), y[i])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 100 == 0:
        print("step", step, "loss", loss.item())
net.eval()
with torch.no_grad():
    print("final:", nn.functional.mse_loss(net(hx), hy).item())
