# expect: healthy
# symptom: the loss jumps up at regular intervals (looks like lost optimizer state or an unstable learning rate)
# axis: schedule
"""Tide forecasting with a dilated causal TCN, cosine warm restarts; Adam starts afresh in every cycle, one snapshot per cycle."""

import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(21)
CYCLES, CYCLE_LEN, PEAK_LR, FLOOR_LR = 4, 100, 8e-3, 1e-5
CONTEXT, HORIZON, BATCH = 96, 12, 40


def tide_gauge(hours=12000, seed=21):
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    level = np.zeros(hours)
    for period, amp in ((12.42, 1.0), (12.0, 0.45), (23.93, 0.3), (25.82, 0.25)):
        level += amp * np.cos(2 * np.pi * t / period + rng.uniform(0, 6.28))
    surge = np.zeros(hours)
    for k in range(1, hours):
        surge[k] = 0.97 * surge[k - 1] + 0.04 * rng.normal()
    return torch.tensor(level + surge, dtype=torch.float32)


class CausalBlock(nn.Module):
    def __init__(self, ch, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(ch, 2 * ch, 3, dilation=dilation))
        self.mix = nn.Conv1d(ch, ch, 1)

    def forward(self, x):
        a, b = self.conv(F.pad(x, (self.pad, 0))).chunk(2, dim=1)
        return x + self.mix(torch.tanh(a) * torch.sigmoid(b))


class TCN(nn.Module):
    def __init__(self, ch=24):
        super().__init__()
        self.inp = nn.Conv1d(1, ch, 1)
        self.blocks = nn.Sequential(*[CausalBlock(ch, 2**k) for k in range(5)])
        self.out = nn.Linear(ch, HORIZON)

    def forward(self, x):
        return self.out(self.blocks(self.inp(x[:, None]))[:, :, -1])


def windows(series, starts):
    idx = starts[:, None] + torch.arange(CONTEXT + HORIZON)
    w = series[idx]
    return w[:, :CONTEXT], w[:, CONTEXT:]


series = tide_gauge()
split = 10000
val_x, val_y = windows(series, torch.arange(split, len(series) - CONTEXT - HORIZON, 3))
model = TCN()
snapshots = []
step = 0
for cycle in range(CYCLES):
    optimizer = torch.optim.Adam(model.parameters(), lr=PEAK_LR)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, CYCLE_LEN, eta_min=FLOOR_LR)
    for _ in range(CYCLE_LEN):
        x, y = windows(series, torch.randint(0, split - CONTEXT - HORIZON, (BATCH,)))
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        step += 1
        if step % 15 == 0:
            print(f"step {step:3d} lr {schedule.get_last_lr()[0]:.5f} loss {loss.item():.4f}", flush=True)
    snapshots.append(copy.deepcopy(model).eval())
    with torch.no_grad():
        single = F.mse_loss(snapshots[-1](val_x), val_y).item()
        joint = F.mse_loss(torch.stack([m(val_x) for m in snapshots]).mean(0), val_y).item()
    print(f"cycle {cycle}: validation mse {single:.4f}, ensemble of {len(snapshots)}: {joint:.4f}", flush=True)
