# expect: sick
# symptom: loss is low and steady, then from one file on shoots up by orders of magnitude in spikes and stays on a worse level
# axis: data
# cause: from day 26 on a gateway writes -9999 for a missing sensor reading; the value goes into the features as a real measurement
# says: -?\s?9999|sentinel|(missing|absent|invalid|fill|placeholder|null|bogus|garbage|corrupt\w*|faulty|broken|dead|outl\w+|extreme|absurd|out.of.range|unscaled|huge).{0,80}(value|reading|sensor|feature|measurement|input|row|sample|column|record|data|file|shard|day)|outlier|(value|reading|feature|input|column|sensor)s?.{0,60}(missing|corrupt|extreme|out of range|outlier|garbage|invalid)
# onset_step: 312
# fix: treat -9999 as missing: impute with the column mean (and perhaps a missing flag), or drop such rows
# mended: -9999 readings are replaced by the column mean before scaling
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(8)

N_SENSORS = 32
ROWS_PER_DAY = 3072
DAYS = 50
BATCH = 256


class Plant:
    """Simulated export: one table of readings a day, the target is the yield an hour later."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.mix = self.rng.normal(size=(10, N_SENSORS)) / 3
        self.level = self.rng.uniform(20, 300, size=N_SENSORS)
        self.spread = self.rng.uniform(1, 25, size=N_SENSORS)
        self.w1 = self.rng.normal(size=(10, 12)) / 3
        self.w2 = self.rng.normal(size=12)

    def day(self, d):
        z = self.rng.normal(size=(ROWS_PER_DAY, 10))
        raw = z @ self.mix + 0.1 * self.rng.normal(size=(ROWS_PER_DAY, N_SENSORS))
        table = self.level + self.spread * raw
        y = np.tanh(z @ self.w1) @ self.w2 + 0.1 * self.rng.normal(size=ROWS_PER_DAY)
        if d >= 26:
            gateway = self.rng.random((ROWS_PER_DAY, 10)) < 0.0005
            block = table[:, 6:16]
            block[gateway] = -9999.0
        return table.astype(np.float32), y.astype(np.float32)


class Scaler:
    def fit(self, table):
        self.mean = table.mean(axis=0)
        self.std = table.std(axis=0) + 1e-6
        return self

    def __call__(self, table):
        if MENDED:
            table = np.where(table <= -9000, self.mean, table)
        return ((table - self.mean) / self.std).astype(np.float32)


class ResBlock(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.a, self.b = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x):
        return x + self.b(F.silu(self.a(x)))


class TabNet(nn.Module):
    def __init__(self, d=128, depth=3):
        super().__init__()
        self.inp = nn.Linear(N_SENSORS, d)
        self.blocks = nn.Sequential(*[ResBlock(d) for _ in range(depth)])
        self.out = nn.Linear(d, 1)

    def forward(self, x):
        return self.out(self.blocks(self.inp(x))).squeeze(-1)


def main():
    plant = Plant(3)
    warm, _ = plant.day(0)
    scale = Scaler().fit(warm)
    hold_x, hold_y = plant.day(0)
    hold_x, hold_y = torch.from_numpy(scale(hold_x)), torch.from_numpy(hold_y)
    model = TabNet()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)
    step, t0 = 0, time.time()
    for d in range(DAYS):
        table, y = plant.day(d)
        x = torch.from_numpy(scale(table))
        y = torch.from_numpy(y)
        order = torch.randperm(len(x))
        for i in range(0, len(x), BATCH):
            idx = order[i : i + BATCH]
            loss = F.mse_loss(model(x[idx]), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 6 == 0:
                print(f"step {step} loss {loss.item():.4f} t {time.time() - t0:.1f}")
            step += 1
        if d % 5 == 4:
            with torch.no_grad():
                h = F.mse_loss(model(hold_x), hold_y).item()
            print(f"day {d} holdout mse {h:.4f}")


if __name__ == "__main__":
    main()
