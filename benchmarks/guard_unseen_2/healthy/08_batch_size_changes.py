# Healthy: the batch size goes 128, 4, 32, 2, 64; the rate stays.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
fixed = torch.Generator().manual_seed(48)
w = torch.randn(9, 5, generator=fixed)


def draw(n, g=None):
    x = torch.randn(n, 9, generator=g)
    return x, (torch.relu(x) @ w + 2 * torch.randn(n, 5, generator=g)).argmax(1)


test = draw(3000, fixed)
torch.manual_seed(args.seed)
model = nn.Sequential(
    nn.Linear(9, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 5)
)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(1500):
    x, label = draw((128, 4, 32, 2, 64)[step // 300])
    loss = nn.functional.cross_entropy(model(x), label)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(step, len(x), f"{loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(model(test[0]), test[1]).item())
