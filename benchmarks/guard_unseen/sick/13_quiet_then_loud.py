# Two-task network, Adam with a long memory. Fault: from step 700 the gain of the sensor is 12 instead of 1 for 60 steps
# while the second moments have only seen 400 quiet steps.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
g = torch.Generator().manual_seed(81)
w = torch.randn(12, 3, generator=g) / 3


def draw(n):
    x = torch.randn(n, 12, generator=g)
    return x, torch.tanh(x @ w) + 0.2 * torch.randn(n, 3, generator=g)


x, y = draw(6000)
hx, hy = draw(2000)
torch.manual_seed(args.seed)
net = nn.Sequential(nn.Linear(12, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 3))
opt = torch.optim.Adam(net.parameters(), lr=2e-3, betas=(0.9, 0.9999))
for step in range(780):
    i = torch.randint(0, 6000, (32,))
    xb, yb = x[i], y[i]
    if 700 <= step < 760 and not args.twin:
        yb = yb * 12.0
    loss = nn.functional.mse_loss(net(xb), yb)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 60 == 0:
        print(step, f"{loss.item():.4f}")
net.eval()
with torch.no_grad():
    print("final:", nn.functional.mse_loss(net(hx), hy).item())
