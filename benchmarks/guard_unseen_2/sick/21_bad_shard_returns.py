# Residual regression, AdamW. Fault: from step 200 on every fortieth batch is read in other units (inputs and targets x250).
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
fixed = torch.Generator().manual_seed(31)
w = torch.randn(10, 24, generator=fixed) / 3


def draw(n, g=None):
    x = torch.randn(n, 10, generator=g)
    return x, torch.tanh(x @ w).cumsum(1)[:, 5::6] + torch.randn(n, 4, generator=g) * 0.6


test = draw(3000, fixed)
torch.manual_seed(args.seed)
model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(800):
    x, y = draw(64)
    if step >= 200 and step % 40 == 0 and not args.twin:
        x, y = x * 250, y * 250
    loss = nn.functional.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 25:
        print(step, f"{loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", nn.functional.mse_loss(model(test[0]), test[1]).item())
