# Continual learning: a convolutional network knows five kinds of spectra; at step 250 five noisier kinds are mixed in, which it has never
# seen (a loss far above anything since the start).
import argparse

import torch
import torch.nn as nn

args = argparse.ArgumentParser()
args.add_argument("--seed", type=int, default=0)
args = args.parse_args()

base = torch.Generator().manual_seed(300)
peaks = torch.rand(10, 4, generator=base)
axis = torch.linspace(0, 1, 96)


def spectra(n, kinds, g=None):
    y = torch.randint(0, kinds, (n,), generator=g)
    where = peaks[y] + 0.015 * torch.randn(n, 4, generator=g)
    height = 0.5 + torch.rand(n, 4, generator=g)
    x = (height[..., None] * torch.exp(-((axis - where[..., None]) / 0.02) ** 2)).sum(1)
    noise = torch.where(y < 5, 0.2, 0.6)[:, None]
    return (x + noise * torch.randn(n, 96, generator=g))[:, None], y


test_x, test_y = spectra(1500, 10, base)
torch.manual_seed(args.seed)
model = nn.Sequential(
    nn.Conv1d(1, 24, 7, padding=3), nn.ReLU(), nn.MaxPool1d(2),
    nn.Conv1d(24, 48, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2),
    nn.Flatten(), nn.Linear(48 * 24, 64), nn.ReLU(), nn.Linear(64, 10),
)
opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
criterion = nn.CrossEntropyLoss()
for step in range(600):
    x, y = spectra(64, 5 if step < 250 else 10)
    loss = criterion(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(f"{step} {loss.item():.4f}")

with torch.no_grad():
    print("final:", criterion(model(test_x), test_y).item())
