# expect: healthy
# symptom: the loss is negative, is printed as large sums, and climbs up again after steps 60 and 180, as the learning rate jumps back to its maximum
# axis: none
# mended: none
"""Probabilistic load forecasting: GRU with Gaussian likelihood, warm restarts, and a snapshot ensemble."""

import copy
import math

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(12)

HIST, AHEAD, BS = 36, 6, 64


def load_curves(n_series=40, length=600, seed=0):
    r = np.random.default_rng(seed)
    t = np.arange(length)
    out = []
    for _ in range(n_series):
        day = np.sin(2 * np.pi * t / 24 + r.uniform(0, 6)) * r.uniform(0.5, 1.2)
        week = np.sin(2 * np.pi * t / 168 + r.uniform(0, 6)) * r.uniform(0.1, 0.5)
        ar, e = np.zeros(length), r.normal(0, 0.05, length)
        for k in range(1, length):
            ar[k] = 0.9 * ar[k - 1] + e[k] * (1 + 0.8 * (day[k] > 0))
        out.append(day + week + ar)
    return torch.tensor(np.stack(out), dtype=torch.float32)


series = load_curves()
train, test = series[:, :480], series[:, 480:]


def windows(src, n, gen):
    rows = torch.randint(0, src.size(0), (n,), generator=gen)
    at = torch.randint(0, src.size(1) - HIST - AHEAD, (n,), generator=gen)
    w = src[rows[:, None], at[:, None] + torch.arange(HIST + AHEAD)]
    base = w[:, HIST - 1 : HIST]
    return (w[:, :HIST] - base).unsqueeze(-1), w[:, HIST:] - base


class Forecaster(nn.Module):
    def __init__(self, h=48):
        super().__init__()
        self.gru = nn.GRU(1, h, num_layers=1, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(h, 48), nn.SiLU(), nn.Linear(48, 2 * AHEAD))

    def forward(self, x):
        mu, raw = self.mlp(self.gru(x)[0][:, -1]).chunk(2, -1)
        return mu, nn.functional.softplus(raw) + 1e-3


def nll(mu, sigma, y):
    return 0.5 * ((y - mu) / sigma) ** 2 + sigma.log() + 0.5 * math.log(2 * math.pi)


gen = torch.Generator().manual_seed(3)
model = Forecaster()
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=60, T_mult=2, eta_min=1e-5)
cycle_ends = {60, 180, 420}
snapshots = []
for step in range(420):
    x, y = windows(train, BS, gen)
    mu, sigma = model(x)
    loss = nll(mu, sigma, y).sum()  # log likelihood of the whole batch
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(model.parameters(), 50.0)
    opt.step()
    sched.step()
    if step % 15 == 0:
        print(f"step {step:3d} batch nll {loss.item():9.1f} lr {opt.param_groups[0]['lr']:.2e}")
    if step + 1 in cycle_ends:
        snapshots.append(copy.deepcopy(model).eval())
        print(f"  snapshot {len(snapshots)} taken at {step + 1}")

x, y = windows(test, 1000, torch.Generator().manual_seed(8))
with torch.no_grad():
    parts = [m(x) for m in snapshots]
    for i, (mu, sigma) in enumerate(parts):
        inside = ((y - mu).abs() < 1.645 * sigma).float().mean().item()
        print(f"snapshot {i + 1}: test nll per value {nll(mu, sigma, y).mean().item():.4f} 90% coverage {inside:.3f}")
    logp = torch.stack([-nll(m, s, y) for m, s in parts[1:]]).logsumexp(0) - math.log(len(parts) - 1)
    print(f"ensemble of the last two: test nll per value {-logp.mean().item():.4f}")
