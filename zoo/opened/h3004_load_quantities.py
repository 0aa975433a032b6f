# expect: healthy
# symptom: negative loss that jumps up at every restart of the rate, as in an unstable run with a wrong loss sign
# axis: none
"""Heteroscedastic tabular regression: mean and spread of plant load from a few meters."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
SEED, STEPS, MICRO, ACCUM = 6, 350, 64, 2


def meters(n, rng):
    temp = rng.normal(15, 8, n)
    hour = rng.integers(0, 24, n)
    pressure = rng.lognormal(8, 0.4, n)
    line = rng.integers(0, 4, n)
    base = 0.6 * np.sin(2 * np.pi * hour / 24) + 0.04 * temp + 0.3 * np.log(pressure / 3000) * (line % 2)
    spread = 0.03 + 0.10 * (line == 3) + 0.05 * (hour > 17)
    load = base + spread * rng.standard_normal(n)
    numeric = np.stack(
        [temp, np.sin(2 * np.pi * hour / 24), np.cos(2 * np.pi * hour / 24), hour > 17, np.log(pressure)], axis=1
    )
    return numeric.astype(np.float32), line.astype(np.int64), load.astype(np.float32)


class MeterTable:
    """Rows were permuted once when the table was written; reading is in file order."""

    def __init__(self, rows, stats=None):
        num, line, load = rows
        self.stats = stats or (num.mean(0), num.std(0))
        self.num = torch.from_numpy((num - self.stats[0]) / self.stats[1])
        self.line, self.load = torch.from_numpy(line), torch.from_numpy(load)

    def forever(self, size):
        while True:
            for i in range(0, len(self.load) - size + 1, size):
                yield self.num[i : i + size], self.line[i : i + size], self.load[i : i + size]


class LoadNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Embedding(4, 8)
        self.body = nn.Sequential(nn.Linear(13, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU())
        self.out = nn.Linear(96, 2)

    def forward(self, num, line):
        mean, raw = self.out(self.body(torch.cat([num, self.line(line)], dim=1))).unbind(1)
        return mean, F.softplus(raw) + 1e-2


def nll(mean, scale, y):
    return (0.5 * ((y - mean) / scale) ** 2 + scale.log()).mean()


def main():
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    train = MeterTable(meters(12000, rng))
    valid = MeterTable(meters(2000, rng), train.stats)
    model = LoadNet()
    opt = torch.optim.AdamW(model.parameters(), lr=6e-3, weight_decay=1e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=50, T_mult=2, eta_min=1e-5)
    stream = train.forever(MICRO)
    for step in range(1, STEPS + 1):
        total = 0.0
        for _ in range(ACCUM):
            num, line, y = next(stream)
            loss = nll(*model(num, line), y) / ACCUM
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        sched.step()
        opt.zero_grad()
        if step % 15 == 0 or step == 1:
            print(f"step {step} nll {total:+.4f} lr {sched.get_last_lr()[0]:.5f}")
    with torch.no_grad():
        mean, scale = model(valid.num, valid.line)
        z = (valid.load - mean) / scale
        rmse = (valid.load - mean).pow(2).mean().sqrt().item()
        print(
            f"final valid nll {nll(mean, scale, valid.load).item():+.4f} rmse {rmse:.4f} "
            f"(target std {valid.load.std().item():.4f}) z std {z.std().item():.3f}"
        )


if __name__ == "__main__":
    main()
