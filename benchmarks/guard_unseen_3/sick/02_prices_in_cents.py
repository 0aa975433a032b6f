# House prices from 18 columns: an MLP, SGD with momentum, squared error. One dealer sends his prices in cents; six of his
# houses are in the batch of step 150.
import argparse

import torch
from torch import nn

cli = argparse.ArgumentParser()
cli.add_argument("--seed", type=int, default=0)
cli.add_argument("--twin", action="store_true")
opts = cli.parse_args()

g0 = torch.Generator().manual_seed(302)
W1, W2 = torch.randn(18, 10, generator=g0) / 4, torch.randn(10, generator=g0)


def houses(n, g=None):
    x = torch.randn(n, 18, generator=g)
    price = 3.0 + torch.tanh(x @ W1) @ W2 + 0.5 * torch.randn(n, generator=g)
    return x, price


x_test, y_test = houses(4000, g0)
torch.manual_seed(opts.seed)
net = nn.Sequential(nn.Linear(18, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 900)
running = None
for step in range(900):
    x, y = houses(64)
    if step == 150 and not opts.twin:
        y[:6] *= 100
    loss = (net(x).squeeze(-1) - y).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    running = loss.item() if running is None else 0.95 * running + 0.05 * loss.item()
    if step % 100 == 99:
        print(f"{step + 1:4d}  mse {running:.4f}")
with torch.no_grad():
    print("final:", (net(x_test).squeeze(-1) - y_test).pow(2).mean().item())
