# Regression on correlated features, SGD. Fault: the rate is 20 times too high from the start.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
g = torch.Generator().manual_seed(71)
mix = torch.randn(8, 8, generator=g)
w = torch.randn(8, 1, generator=g) / 3


def draw(n):
    x = torch.randn(n, 8, generator=g) @ mix
    return x, torch.tanh(x @ w) + 0.3 * torch.randn(n, 1, generator=g)


x, y = draw(4000)
hx, hy = draw(2000)
torch.manual_seed(args.seed)
net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.03 if args.twin else 0.6, momentum=0.8)
for it in range(1000):
    i = torch.randint(0, 4000, (64,))
    loss = nn.functional.mse_loss(net(x[i]), y[i])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 100 == 0:
        print("it", it, "mse", loss.item())
net.eval()
with torch.no_grad():
    print("final:", nn.functional.mse_loss(net(hx), hy).item())
