# Healthy: a curriculum; at steps 800 and 1600 the task becomes harder and the loss jumps, as planned.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
torch.manual_seed(args.seed)
net = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))
opt = torch.optim.AdamW(net.parameters(), lr=2e-3)


def batch(level, n=64):
    x = torch.rand(n, 8) * 2 - 1
    y = x[:, :2].sum(1)
    if level > 0:
        y = y + 2 * (3 * x[:, 2]).sin() * x[:, 3]
    if level > 1:
        y = y + 4 * (3 * x[:, 4] * x[:, 5]).cos()
    return x, y[:, None] + 0.1 * torch.randn(n, 1)


for step in range(2600):
    x, y = batch(step // 800 if step < 2400 else 2)
    loss = nn.functional.mse_loss(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 200 == 0:
        print(f"step {step} level {step // 800} loss {loss.item():.4f}")
net.eval()
with torch.no_grad():
    x, y = batch(2, 4000)
    print("final:", nn.functional.mse_loss(net(x), y).item())
