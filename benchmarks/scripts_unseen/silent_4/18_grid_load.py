# expect: sick
# cause: Gradients are clipped to a norm of 0.001, far below their usual size, so the SGD steps are tiny and the model barely moves.
import math
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Config:
    lookback: int = 48
    horizon: int = 12
    hidden: int = 64
    lr: float = 0.05
    momentum: float = 0.9
    grad_clip: float = 1e-3
    batch_size: int = 48
    steps: int = 400
    seed: int = 12


class LoadForecaster(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.lstm = nn.LSTM(1, cfg.hidden, batch_first=True)
        self.head = nn.Sequential(nn.Linear(cfg.hidden + cfg.lookback, 64), nn.ReLU(), nn.Linear(64, cfg.horizon))

    def forward(self, past):
        h, _ = self.lstm(past.unsqueeze(-1))
        return self.head(torch.cat([h[:, -1], past], -1))


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        hours = torch.arange(9000).float()
        day = torch.sin(2 * math.pi * hours / 24) + 0.5 * torch.sin(4 * math.pi * hours / 24 + 1)
        week = 0.6 * torch.sin(2 * math.pi * hours / 168)
        drift = torch.cumsum(0.03 * torch.randn(9000), 0)
        series = day + week + drift + 0.1 * torch.randn(9000)
        self.series = (series - series.mean()) / series.std()
        self.model = LoadForecaster(cfg)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=cfg.lr, momentum=cfg.momentum)

    def windows(self, low, high, n):
        starts = torch.randint(low, high - self.cfg.lookback - self.cfg.horizon, (n,))
        rows = torch.stack([self.series[s : s + self.cfg.lookback + self.cfg.horizon] for s in starts.tolist()])
        return rows[:, : self.cfg.lookback], rows[:, self.cfg.lookback :]

    def step(self):
        past, future = self.windows(0, 7500, self.cfg.batch_size)
        loss = nn.functional.mse_loss(self.model(past), future)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.grad_clip)
        self.optimizer.step()
        return loss.item()

    def fit(self):
        past, future = self.windows(7500, 9000, 400)
        for i in range(1, self.cfg.steps + 1):
            loss = self.step()
            if i % 50 == 0:
                with torch.no_grad():
                    val = nn.functional.mse_loss(self.model(past), future).item()
                print(f"[{i}/{self.cfg.steps}] mse {loss:.4f} val {val:.4f} (variance {future.var():.3f})")


Trainer(Config()).fit()
