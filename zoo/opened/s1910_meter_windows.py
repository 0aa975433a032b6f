# expect: sick
# symptom: the forecaster learns far too little; train and validation MSE stall many times above the noise although every meter has a clean cycle
# axis: data
# cause: np.lexsort takes its primary key last, so lexsort((meter, hour)) sorts by hour and then meter, and the reshape to (meters, hours) mixes readings of all meters in every row instead of giving one meter's time series
# says: lexsort|(sort(ed|ing|s)?|order(ed|ing|s)?|reshap\w*|row\w*|window\w*|interleav\w*)[^.]*(meter|series|sensor|hour|time|entit)[^.]*(mix|interleav|wrong|swap|revers|instead|not |before|scrambl|primary|cross|differ|first)|(mix|interleav|scrambl)\w*[^.]*(meter|series|sensor)
# onset_step: 1
# fix: swap the keys, np.lexsort((hour, meter)), so that rows are grouped by meter and ordered by hour
# mended: yes
import os
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

MENDED = os.environ.get("MENDED") == "1"


@dataclass
class Config:
    meters: int = 300
    hours: int = 240
    context: int = 48
    batch: int = 128
    lr: float = 2e-3
    epochs: int = 5
    seed: int = 3


def read_gateway_log(cfg, rng):
    """Readings as the gateway delivers them: (meter, hour, kwh) in arrival order."""
    meter, hour = np.meshgrid(np.arange(cfg.meters), np.arange(cfg.hours), indexing="ij")
    level = rng.uniform(1.9, 2.1, cfg.meters)[:, None]
    amp = rng.uniform(0.4, 0.7, cfg.meters)[:, None]
    phase = rng.uniform(0, 24, cfg.meters)[:, None]
    evening = rng.uniform(0.1, 0.3, cfg.meters)[:, None]
    cycle = rng.uniform(5, 14, cfg.meters)[:, None]  # heat pumps switch at their own pace
    w = 2 * np.pi * (hour - phase) / cycle
    kwh = level + amp * np.sin(w) + evening * np.sin(2 * w)
    drift = np.cumsum(rng.normal(0, 0.02, kwh.shape), axis=1)
    kwh = kwh + drift + rng.normal(0, 0.05, kwh.shape)
    arrival = rng.permutation(kwh.size)
    return meter.ravel()[arrival], hour.ravel()[arrival], kwh.ravel()[arrival]


def to_table(cfg, meter, hour, kwh):
    keys = (hour, meter) if MENDED else (meter, hour)
    order = np.lexsort(keys)
    return kwh[order].reshape(cfg.meters, cfg.hours)


def make_windows(table, context, lo, hi):
    xs, ys = [], []
    for row in table:
        for t in range(lo, hi - context, 4):
            xs.append(row[t : t + context])
            ys.append(row[t + context])
    x = torch.tensor(np.stack(xs), dtype=torch.float32)
    y = torch.tensor(np.array(ys), dtype=torch.float32)
    return TensorDataset(x, y)


class Forecaster(nn.Module):
    def __init__(self, context, width=96):
        super().__init__()
        self.conv = nn.Conv1d(1, 12, 5, padding=2)
        self.mlp = nn.Sequential(
            nn.Linear(12 * context, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, 1),
        )

    def forward(self, x):
        h = torch.relu(self.conv(x.unsqueeze(1)))
        return self.mlp(h.flatten(1)).squeeze(-1)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    err = n = 0.0
    for x, y in loader:
        err += (model(x) - y).pow(2).sum().item()
        n += len(y)
    model.train()
    return err / n


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    table = to_table(cfg, *read_gateway_log(cfg, rng))

    # per-row scaling with statistics of the training period only
    cut = int(cfg.hours * 0.75)
    mu = table[:, :cut].mean(1, keepdims=True)
    sd = table[:, :cut].std(1, keepdims=True)
    table = (table - mu) / sd

    train = DataLoader(make_windows(table, cfg.context, 0, cut), cfg.batch, shuffle=True)
    val = DataLoader(make_windows(table, cfg.context, cut - cfg.context, cfg.hours), 1024)

    model = Forecaster(cfg.context)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=1e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, cfg.epochs * len(train))
    step = 0
    for epoch in range(cfg.epochs):
        for x, y in train:
            loss = nn.functional.mse_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            step += 1
            if step % 40 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
        print(f"epoch {epoch} val_mse {evaluate(model, val):.4f}", flush=True)


if __name__ == "__main__":
    main()
