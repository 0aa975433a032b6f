# Healthy: regression on heavy-tailed targets (Student t, 2.5 degrees), Adam: gradients leap and come back.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
g = torch.Generator().manual_seed(1)
w = torch.randn(10, 1, generator=g) / 2
torch.manual_seed(args.seed)
noise = torch.distributions.StudentT(2.5)
net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(3000):
    x = torch.randn(16, 10)
    y = x @ w + 0.5 * noise.sample((16, 1))
    loss = nn.functional.mse_loss(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 300 == 0:
        print(step, loss.item())
hx = torch.randn(2000, 10, generator=g)
net.eval()
with torch.no_grad():
    print("final:", nn.functional.mse_loss(net(hx), hx @ w).item())
