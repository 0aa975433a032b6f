# Healthy: dropout goes 0, 0.7, 0, 0.7 in phases of 300 steps; the loss goes up and down with it.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
fixed = torch.Generator().manual_seed(56)
centre = torch.randn(6, 18, generator=fixed) * 0.8


def draw(n, g=None):
    k = torch.randint(0, 6, (n,), generator=g)
    return centre[k] + torch.randn(n, 18, generator=g) * 1.2, k


test = draw(3000, fixed)
torch.manual_seed(args.seed)
drops = [nn.Dropout(0.0), nn.Dropout(0.0)]
model = nn.Sequential(nn.Linear(18, 64), nn.ReLU(), drops[0], nn.Linear(64, 64), nn.ReLU(), drops[1], nn.Linear(64, 6))
opt = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.5)
for step in range(1200):
    for layer in drops:
        layer.p = 0.7 if step // 300 % 2 else 0.0
    x, k = draw(32)
    loss = nn.functional.cross_entropy(model(x), k)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(step, f"{loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(model(test[0]), test[1]).item())
