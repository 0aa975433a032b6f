# expect: healthy
# symptom: the loss jumps up at regular intervals like an instability of the optimizer (warm restarts of a snapshot ensemble)
# axis: schedule
"""Tide gauge forecasting, dilated causal convolutions, snapshot ensemble from SGDR cycles."""

import copy
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts

torch.set_num_threads(1)
torch.manual_seed(42)

CONTEXT, HORIZON = 128, 12
CYCLE, CYCLES = 120, 4
PERIODS_H = [12.4206, 12.0, 12.6583, 23.9345, 25.8193]
AMPLITUDE = [1.0, 0.45, 0.2, 0.35, 0.25]


def tide_series(hours, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    level = np.zeros(hours)
    for period, amp in zip(PERIODS_H, AMPLITUDE):
        level += amp * np.cos(2 * math.pi * t / period + rng.uniform(0, 2 * math.pi))
    surge = np.zeros(hours)
    for k in range(1, hours):
        surge[k] = 0.97 * surge[k - 1] + rng.normal(scale=0.04)
    return torch.tensor(level + surge, dtype=torch.float32)


class CausalBlock(nn.Module):
    def __init__(self, ch, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(ch, 2 * ch, 3, dilation=dilation)
        self.mix = nn.Conv1d(ch, ch, 1)

    def forward(self, x):
        a, b = self.conv(F.pad(x, (self.pad, 0))).chunk(2, dim=1)
        return x + self.mix(torch.tanh(a) * torch.sigmoid(b))


class TideNet(nn.Module):
    def __init__(self, ch=24):
        super().__init__()
        self.inp = nn.Conv1d(1, ch, 1)
        self.blocks = nn.Sequential(*[CausalBlock(ch, 2**k) for k in range(6)])
        self.out = nn.Linear(ch, HORIZON)

    def forward(self, x):
        return self.out(self.blocks(self.inp(x[:, None]))[:, :, -1])


def windows(series, idx):
    grid = idx[:, None] + torch.arange(CONTEXT + HORIZON)
    w = series[grid]
    return w[:, :CONTEXT], w[:, CONTEXT:]


series = tide_series(9000, seed=5)
split = 7500
test_idx = torch.arange(split, len(series) - CONTEXT - HORIZON, 5)
test_x, test_y = windows(series, test_idx)

model = TideNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9, nesterov=True)
scheduler = CosineAnnealingWarmRestarts(optimizer, T_0=CYCLE, eta_min=5e-4)
snapshots = []
gen = torch.Generator().manual_seed(0)

for step in range(1, CYCLE * CYCLES + 1):
    idx = torch.randint(0, split - CONTEXT - HORIZON, (48,), generator=gen)
    x, y = windows(series, idx)
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    if step % 10 == 0:
        print(f"{step:4d} lr {scheduler.get_last_lr()[0]:.4f} mse {loss.item():.4f}")
    if step % CYCLE == 0:
        snapshots.append(copy.deepcopy(model).eval())
        with torch.no_grad():
            single = F.mse_loss(snapshots[-1](test_x), test_y).item()
            joint = F.mse_loss(torch.stack([m(test_x) for m in snapshots]).mean(0), test_y).item()
        print(
            f"snapshot {len(snapshots)}: test mse {single:.4f}, ensemble of {len(snapshots)} {joint:.4f}, "
            f"variance of the series {test_y.var().item():.4f}"
        )
