# Remaining life of pumps from readings in very different units, Adam. A running mean and deviation scales them; its count starts
# at 1e-8 with a deviation of 1, and it is brought up to date after the step in place of before it: the very first
# batch goes in as it is.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
fixed = torch.Generator().manual_seed(318)
unit = 10 ** (6 * torch.rand(16, generator=fixed) - 1)
offset = unit * torch.randn(16, generator=fixed) * 3
m = torch.randn(16, 8, generator=fixed) / 4


def pumps(n, g=None):
    z = torch.randn(n, 16, generator=g)
    life = 2 * torch.tanh(z @ m).sum(1) + 0.7 * torch.randn(n, generator=g)
    return offset + unit * z, life


class Scaler:
    def __init__(self):
        self.mean, self.var, self.count = torch.zeros(16), torch.ones(16), 1e-8

    def update(self, x):
        n, mean, var = len(x), x.mean(0), x.var(0, unbiased=False)
        d, total = mean - self.mean, self.count + n
        self.var = (self.var * self.count + var * n + d**2 * self.count * n / total) / total
        self.mean, self.count = self.mean + d * n / total, total

    def __call__(self, x):
        return (x - self.mean) / (self.var + 1e-8).sqrt()


test_x, test_y = pumps(3000, fixed)
torch.manual_seed(args.seed)
scaler = Scaler()
model = nn.Sequential(nn.Linear(16, 48), nn.LeakyReLU(0.1), nn.Linear(48, 48), nn.LeakyReLU(0.1), nn.Linear(48, 1))
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(700):
    x, life = pumps(48)
    if args.twin:
        scaler.update(x)
    loss = nn.functional.mse_loss(model(scaler(x)).squeeze(1), life)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if not args.twin:
        scaler.update(x)
    if step % 50 == 0:
        print(f"{step} {loss.item():.4f}")
with torch.no_grad():
    print("final:", nn.functional.mse_loss(model(scaler(test_x)).squeeze(1), test_y).item())
