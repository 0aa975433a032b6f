# expect: sick
# symptom: the forecaster's loss stops at the variance of the target; it predicts the mean for every window
# axis: loss
# cause: the prediction has shape (B, 1) and the target (B,), so the squared difference broadcasts to a B by B matrix
# says: (broadcast|(shape|dimension|size)s?.{0,50}(mismatch|differ|not match|do not agree|disagree|unsqueez|squeez|\(?b(atch)?, ?1\)?)|(mis-?match\w*|differ\w*|wrong|incompatible).{0,30}(shape|dimension|size)|b(atch)? ?(x|by|×) ?b(atch)?\b|squeeze)
# onset_step: 1
# fix: squeeze the last axis of the prediction before the difference
# mended: MENDED=1
import math
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
torch.set_num_threads(1)
HORIZON, WINDOW = 6, 48


def synthetic_load(hours=24 * 150, seed=3):
    g = np.random.default_rng(seed)
    t = np.arange(hours)
    daily = 12 * np.sin(2 * math.pi * t / 24) + 5 * np.sin(4 * math.pi * t / 24 + 0.7)
    weekly = 6 * ((t // 24) % 7 < 5)
    ar = np.zeros(hours)
    for i in range(1, hours):
        ar[i] = 0.95 * ar[i - 1] + g.normal(0, 0.8)
    return 60 + daily + weekly + ar


def windows(series):
    mean, std = series[:2400].mean(), series[:2400].std()
    z = (series - mean) / std
    xs = np.stack([z[i : i + WINDOW] for i in range(len(z) - WINDOW - HORIZON)])
    ys = np.stack([z[i + WINDOW + HORIZON - 1] for i in range(len(z) - WINDOW - HORIZON)])
    return torch.tensor(xs, dtype=torch.float32).unsqueeze(-1), torch.tensor(ys, dtype=torch.float32)


class Forecaster(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.rnn = nn.GRU(1, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        h, _ = self.rnn(x)
        y = self.out(h[:, -1])
        return y.squeeze(-1) if os.environ.get("MENDED") == "1" else y


class ForecastLoss(nn.Module):
    def __init__(self, l1=0.1):
        super().__init__()
        self.l1 = l1

    def forward(self, pred, target):
        err = pred - target
        return (err**2).mean() + self.l1 * err.abs().mean()


def run():
    x, y = windows(synthetic_load())
    train = DataLoader(TensorDataset(x[:2800], y[:2800]), batch_size=32, shuffle=True, drop_last=True)
    model, criterion = Forecaster(), ForecastLoss()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=5)
    step = 0
    for epoch in range(5):
        model.train()
        for xb, yb in train:
            opt.zero_grad(set_to_none=True)
            loss = criterion(model(xb), yb)
            loss.backward()
            opt.step()
            step += 1
            if step % 40 == 0:
                print(f"step {step:4d} | loss {loss.item():.4f}")
        sched.step()
        model.eval()
        with torch.no_grad():
            p = model(x[2800:]).flatten()
        print(f"epoch {epoch} valid rmse {(p - y[2800:]).pow(2).mean().sqrt().item():.3f} spread {p.std().item():.3f}")


run()
