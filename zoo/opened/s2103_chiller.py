# expect: sick
# symptom: training and validation error level off far above the sensor noise and no extra capacity or training helps
# axis: precision
# cause: the unix timestamps are cast to float32, which near 1.7e9 resolves only 128 seconds, so the phase features of the short cycles are rounded to noise
# says: (?=[\s\S]*(time ?stamp|unix|epoch second|phase|cycl|time feature|ts\b))(?=[\s\S]*(float ?32|single[- ]precision|precision|resolution|round|quanti[sz]|mantissa|float64|double))
# onset_step: 0
# fix: keep the timestamps in float64 (or subtract the first timestamp) before computing the phases
# mended: yes
import math
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

SETTINGS = {
    "rows": 12000,
    "start": 1_703_980_800,
    "days": 21,
    "periods": [86400.0, 43200.0, 3600.0, 290.0, 170.0],
    "harmonics": 2,
    "hidden": 64,
    "batch": 128,
    "lr": 2e-3,
    "epochs": 9,
}


def make_log(cfg, seed=0):
    """Readings of a chiller plant at irregular times; the compressor and the valve run on short fixed cycles."""
    rng = np.random.default_rng(seed)
    ts = np.sort(rng.integers(cfg["start"], cfg["start"] + cfg["days"] * 86400, cfg["rows"]))
    rel = (ts - cfg["start"]).astype(np.float64)
    ambient = 14 + 7 * np.sin(2 * np.pi * rel / 86400 - 1.8) + rng.normal(0, 1.2, len(ts))
    load = np.clip(0.5 + 0.3 * np.sin(2 * np.pi * rel / 43200) + rng.normal(0, 0.1, len(ts)), 0, 1)
    setpoint = rng.choice([5.0, 6.0, 7.0], len(ts))
    compressor = np.sin(2 * np.pi * rel / 290.0)
    valve = np.cos(2 * np.pi * rel / 170.0 + 0.7)
    power = 22 + 0.9 * (ambient - setpoint) + 14 * load + 6.0 * load * compressor + 3.0 * valve
    power = power + 1.5 * compressor * valve + rng.normal(0, 0.8, len(ts))
    return {"ts": ts, "ambient": ambient, "load": load, "setpoint": setpoint, "power": power}


class TimeEncoder:
    def __init__(self, periods, harmonics):
        self.periods, self.harmonics = periods, harmonics

    def __call__(self, t):
        cols = []
        for p in self.periods:
            phase = 2 * math.pi * torch.remainder(t / p, 1.0)
            for k in range(1, self.harmonics + 1):
                cols += [torch.sin(k * phase), torch.cos(k * phase)]
        return torch.stack(cols, dim=1).float()


class Scaler:
    def fit(self, x):
        self.mean, self.std = x.mean(0), x.std(0).clamp_min(1e-6)
        return self

    def transform(self, x):
        return (x - self.mean) / self.std

    def inverse(self, x):
        return x * self.std + self.mean


class Regressor(nn.Module):
    def __init__(self, d_in, hidden):
        super().__init__()
        self.inp = nn.Linear(d_in, hidden)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, hidden))
            for _ in range(2)
        )
        self.head = nn.Linear(hidden, 1)

    def forward(self, x):
        h = self.inp(x)
        for b in self.blocks:
            h = h + b(h)
        return self.head(h).squeeze(-1)


def build_tensors(cfg):
    log = make_log(cfg)
    t = torch.as_tensor(log["ts"]).to(torch.float64 if MENDED else torch.float32)
    sensors = torch.as_tensor(np.stack([log["ambient"], log["load"], log["setpoint"]], 1)).float()
    y = torch.as_tensor(log["power"]).float()
    time_feats = TimeEncoder(cfg["periods"], cfg["harmonics"])(t)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(5))
    tr, va = order[: int(0.8 * len(y))], order[int(0.8 * len(y)) :]
    xs, ys = Scaler().fit(sensors[tr]), Scaler().fit(y[tr])
    x = torch.cat([xs.transform(sensors), time_feats], 1)
    yz = ys.transform(y)
    return (x[tr], yz[tr]), (x[va], yz[va]), ys


@torch.no_grad()
def rmse(model, x, y, ys):
    model.eval()
    err = ys.inverse(model(x)) - ys.inverse(y)
    return err.pow(2).mean().sqrt().item()


def run(cfg):
    torch.manual_seed(0)
    train, val, ys = build_tensors(cfg)
    loader = DataLoader(TensorDataset(*train), batch_size=cfg["batch"], shuffle=True, drop_last=True)
    model = Regressor(train[0].shape[1], cfg["hidden"])
    opt = torch.optim.AdamW(model.parameters(), lr=cfg["lr"], weight_decay=1e-3)
    total = cfg["epochs"] * len(loader)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=total)
    step = 0
    for epoch in range(cfg["epochs"]):
        model.train()
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            if step % 50 == 0:
                print(f"step {step:4d} train_mse {loss.item():.4f}")
            step += 1
        print(f"epoch {epoch} val_rmse_kw {rmse(model, *val, ys):.3f}")


if __name__ == "__main__":
    run(SETTINGS)
