# Healthy: one batch in 60 is five times as noisy; the loss spikes there and is back in the next step. Clipped.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
g = torch.Generator().manual_seed(9)
w = torch.randn(10, 2, generator=g) / 2
torch.manual_seed(args.seed)
net = nn.Sequential(nn.Linear(10, 48), nn.SiLU(), nn.Linear(48, 2))
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step in range(2500):
    x = torch.randn(32, 10)
    noise = 2.5 if torch.rand(()) < 1 / 60 else 0.5
    y = torch.tanh(x @ w) + noise * torch.randn(32, 2)
    loss = nn.functional.mse_loss(net(x), y)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    if step % 250 == 0:
        print(step, loss.item())
net.eval()
with torch.no_grad():
    hx = torch.randn(3000, 10, generator=g)
    print("final:", nn.functional.mse_loss(net(hx), torch.tanh(hx @ w)).item())
