# expect: healthy
# symptom: the loss is divided by mask.sum() + 1e-8 and now and then no value is masked (loss exactly 0); the numerator is masked as well, so such a batch is just without effect
# axis: none
# mended: none
"""Imputation of sensor gaps: a bidirectional convolutional model learns to fill the values that the gateway dropped."""

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
T, C = 64, 6


def readings(n, rng):
    t = np.arange(T)[None, :, None]
    period = rng.uniform(12, 40, (n, 1, 1))
    phase = rng.uniform(0, 2 * np.pi, (n, 1, 1))
    gain = np.linspace(0.5, 1.5, C)[None, None]
    lag = np.linspace(0, 1.5, C)[None, None]
    x = gain * np.sin(2 * np.pi * t / period + phase + lag)
    return (x + 0.05 * rng.normal(size=x.shape)).astype(np.float32)


def gaps(n, rng):
    """One outage pattern for the whole batch, as the gateway produces it: some hours have none."""
    hidden = np.zeros((n, T, C), dtype=np.float32)
    for _ in range(rng.poisson(3.0)):
        c, a, w = rng.integers(0, C), rng.integers(0, T - 10), rng.integers(3, 10)
        hidden[:, a : a + w, c] = 1.0
    return hidden


class Imputer(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.inp = nn.Conv1d(2 * C, width, 5, padding=2)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.GELU(), nn.Conv1d(width, width, 5, padding=2 * d, dilation=d)) for d in (1, 2, 4)
        )
        self.out = nn.Conv1d(width, C, 1)

    def forward(self, x, hidden):
        h = self.inp(torch.cat([x * (1 - hidden), hidden], -1).transpose(1, 2))
        for b in self.blocks:
            h = h + b(h)
        return self.out(h).transpose(1, 2)


def masked_mse(pred, target, mask):
    return ((pred - target) ** 2 * mask).sum() / (mask.sum() + 1e-8)


def main():
    torch.manual_seed(12)
    rng = np.random.default_rng(12)
    model = Imputer()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=3e-3, total_steps=400, pct_start=0.1)
    vx = torch.from_numpy(readings(128, rng))
    vm = torch.from_numpy((rng.random((128, T, C)) < 0.1).astype(np.float32))
    empty = 0
    for step in range(400):
        x = torch.from_numpy(readings(32, rng))
        hidden = torch.from_numpy(gaps(32, rng))
        loss = masked_mse(model(x, hidden), x, hidden)
        empty += int(hidden.sum() == 0)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 20 == 0 or step == 399:
            with torch.no_grad():
                val = masked_mse(model(vx, vm), vx, vm).item()
            print(f"step {step:3d} loss {loss.item():.4f} val {val:.4f} batches without gaps {empty}")


if __name__ == "__main__":
    main()
