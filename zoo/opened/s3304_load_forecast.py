# expect: sick
# symptom: the loss drops to the spread of the series and stays; the forecasts are all about the mean
# axis: loss
# cause: predictions (B,1) minus targets (B,) broadcast to B x B, so each forecast meets every target
# says: broadcast|\bshape|squeez|trailing dim|B ?[x×,] ?B|\(B, ?1\)|outer (diff|prod)|every pair|all pairs
# onset_step: 0
# fix: squeeze the last dimension of the prediction before the loss
# mended: the script applies that change if the environment has MENDED=1
"""Hourly load forecast: from the last 36 hours (load, temperature, calendar) to the next hour."""

import math
import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


def simulate(hours, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    temp = 10 * np.sin(2 * np.pi * t / (24 * 30)) + 4 * np.sin(2 * np.pi * (t - 6) / 24)
    wander = np.zeros(hours)
    for i in range(1, hours):
        wander[i] = 0.97 * wander[i - 1] + rng.normal(0, 0.6)
    load = 50 + 8 * np.sin(2 * np.pi * t / 24) + 3 * np.sin(4 * np.pi * t / 24) - 0.4 * temp
    load = load - 5 * ((t // 24) % 7 >= 5) + wander
    cal = np.stack([np.sin(2 * np.pi * t / 24), np.cos(2 * np.pi * t / 24), ((t // 24) % 7 >= 5)], 1)
    return np.column_stack([load, temp, cal]).astype(np.float32)


class LoadWindows(Dataset):
    def __init__(self, table, mean, std, window=36):
        self.x = torch.from_numpy((table - mean) / std)
        self.window = window

    def __len__(self):
        return len(self.x) - self.window

    def __getitem__(self, i):
        return self.x[i : i + self.window], self.x[i + self.window, 0]


class Forecaster(nn.Module):
    def __init__(self, features=5, hidden=40):
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, batch_first=True)
        self.norm = nn.LayerNorm(hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        h, _ = self.lstm(x)
        y = self.out(self.norm(h[:, -1]))
        return y.squeeze(-1) if MENDED else y


class LogCosh(nn.Module):
    """Smooth absolute error, less nervous about the odd peak than squares."""

    def forward(self, pred, target):
        err = pred - target
        return (err + nn.functional.softplus(-2.0 * err) - math.log(2.0)).mean()


@torch.no_grad()
def report(model, loader, scale):
    model.eval()
    preds, targets = [], []
    for x, y in loader:
        preds.append(model(x).reshape(-1))
        targets.append(y)
    p, t = torch.cat(preds), torch.cat(targets)
    model.train()
    return (p - t).abs().mean().item() * scale, 1 - ((p - t).pow(2).mean() / t.var()).item()


def main():
    torch.manual_seed(23)
    raw = simulate(4400, seed=4)
    split = 3400
    mean, std = raw[:split].mean(0), raw[:split].std(0)
    train = DataLoader(LoadWindows(raw[:split], mean, std), batch_size=64, shuffle=True, drop_last=True)
    val = DataLoader(LoadWindows(raw[split:], mean, std), batch_size=256)
    model = Forecaster()
    criterion = LogCosh()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-4)
    step = 0
    for epoch in range(6):
        for x, y in train:
            opt.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            step += 1
            if step % 25 == 0:
                print(f"epoch {epoch} step {step:4d} logcosh {loss.item():.4f}")
        mae, r2 = report(model, val, float(std[0]))
        print(f"== epoch {epoch}: val MAE {mae:.3f} MW, R2 {r2:.3f}")


if __name__ == "__main__":
    main()
