# expect: healthy
# symptom: loss jumps at regular intervals when the rate restarts and the optimizer state is thrown away, resembles an unstable schedule
# axis: schedule
"""Snapshot ensemble for bike demand (tabular, numeric + categorical columns).

Cosine cycles; every cycle begins with a fresh optimizer, its end point is kept
and the kept networks are averaged for the prediction.
"""

import copy
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


def make_frame(n, seed):
    rng = np.random.default_rng(seed)
    df = pd.DataFrame(
        {
            "hour": rng.integers(0, 24, n),
            "weekday": rng.integers(0, 7, n),
            "station": rng.integers(0, 25, n),
            "temp": rng.normal(14, 8, n),
            "wind": rng.gamma(2.0, 2.0, n),
            "rain": (rng.random(n) < 0.2).astype(float),
        }
    )
    size = np.random.default_rng(0).uniform(0.5, 2.0, 25)
    work = df.weekday < 5
    peak = np.where(
        work,
        np.exp(-((df.hour - 8) ** 2) / 4) + 1.3 * np.exp(-((df.hour - 17.5) ** 2) / 6),
        1.1 * np.exp(-((df.hour - 14) ** 2) / 18),
    )
    comfort = 1 / (1 + np.exp(-(df.temp - 8) / 4)) - 0.02 * df.wind - 0.4 * df.rain
    rate = 40 * size[df.station] * (0.15 + peak) * np.clip(0.3 + comfort, 0.05, None)
    df["count"] = rng.poisson(rate)
    return df


NUM, CAT = ["temp", "wind", "rain"], ["hour", "weekday", "station"]
train_df, valid_df = make_frame(12000, 1), make_frame(2500, 2)
mean, std = train_df[NUM].mean(), train_df[NUM].std()


def tensors(df):
    num = torch.tensor(((df[NUM] - mean) / std).values, dtype=torch.float32)
    cat = torch.tensor(df[CAT].values, dtype=torch.long)
    y = torch.log1p(torch.tensor(df["count"].values, dtype=torch.float32))
    return num, cat, y


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.ModuleList([nn.Embedding(24, 8), nn.Embedding(7, 4), nn.Embedding(25, 8)])
        self.mlp = nn.Sequential(
            nn.Linear(20 + len(NUM), 128),
            nn.BatchNorm1d(128),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(128, 64),
            nn.BatchNorm1d(64),
            nn.ReLU(),
            nn.Linear(64, 1),
        )

    def forward(self, num, cat):
        e = [emb(cat[:, i]) for i, emb in enumerate(self.emb)]
        return self.mlp(torch.cat(e + [num], 1)).squeeze(1)


def rmsle(nets, num, cat, y):
    with torch.no_grad():
        p = torch.stack([n.eval()(num, cat) for n in nets]).mean(0)
    return (p - y).pow(2).mean().sqrt().item()


torch.manual_seed(4)
num, cat, y = tensors(train_df)
vnum, vcat, vy = tensors(valid_df)
loader = DataLoader(TensorDataset(num, cat, y), batch_size=64, shuffle=True, drop_last=True)
net = Net()
net.mlp[-1].bias.data.fill_(y.mean().item())
snapshots, step, t0 = [], 0, time.time()
CYCLES, CYCLE_STEPS = 4, 187

for cycle in range(CYCLES):
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=CYCLE_STEPS, eta_min=1e-5)
    net.train()
    for a, b, t in loader:
        loss = nn.functional.mse_loss(net(a, b), t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        step += 1
        if step % 25 == 0:
            print(f"cycle {cycle} step {step:4d} lr {schedule.get_last_lr()[0]:.5f} mse {loss.item():.4f}")
    snapshots.append(copy.deepcopy(net))
    print(
        f"== cycle {cycle}: rmsle last {rmsle([snapshots[-1]], vnum, vcat, vy):.4f} "
        f"ensemble {rmsle(snapshots, vnum, vcat, vy):.4f} ({time.time() - t0:.1f}s)"
    )
print(f"std of target {vy.std().item():.4f}")
