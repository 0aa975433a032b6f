# Classifier of feature vectors, Adam. Fault: 40 batches from step 700 on have labels of a careless annotator.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
cfg = ap.parse_args()
g = torch.Generator().manual_seed(77)
centres = torch.randn(10, 20, generator=g)


def draw(n):
    y = torch.randint(0, 10, (n,), generator=g)
    return centres[y] + 1.3 * torch.randn(n, 20, generator=g), y


X, Y = draw(8000)
HX, HY = draw(2000)
torch.manual_seed(cfg.seed)
model = nn.Sequential(nn.Linear(20, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
running = None
order = torch.randperm(8000)
for step in range(780):
    rows = order[(step * 32) % 8000 : (step * 32) % 8000 + 32]
    x, y = X[rows], Y[rows]
    if 700 <= step < 740 and not cfg.twin:
        y = (y + 1 + step % 8) % 10
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    running = loss.item() if running is None else 0.98 * running + 0.02 * loss.item()
    if step % 60 == 59:
        print(f"{step + 1} smoothed loss {running:.4f}")
model.eval()
with torch.no_grad():
    print("final:", round(nn.functional.cross_entropy(model(HX), HY).item(), 6))
