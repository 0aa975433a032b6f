# expect: sick
# symptom: the loss falls a little and stays on a plateau far above the noise floor; nothing explodes
# axis: precision
# cause: the Unix timestamps (about 1.7e9 seconds) are cast to float32, whose resolution there is 128 seconds, before the periodic phases are computed, so the fast cycles are lost to rounding
# says: (float32|single precision|fp32|float\(\)|32.?bit|resolution|mantissa|rounding|quanti[sz])[^.]*(time|epoch|unix|phase|seconds|cycle|period)|(time|epoch|unix|phase|seconds|cycle|period)[^.]*(float32|single precision|fp32|float\(\)|32.?bit|mantissa|rounding|rounded|quanti[sz]|precision)
# onset_step: 1
# fix: compute the phases in float64 and only then cast them to float32
# mended: yes
"""Electric load of a factory hall from time stamp and temperature (TensorDataset + MLP with time encoding)."""

import os
from datetime import datetime, timezone

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(42)

PERIODS = (7 * 86400.0, 86400.0, 3600.0, 450.0, 110.0)  # week, day, hour, press cycle, pump cycle
START = int(datetime(2024, 3, 4, tzinfo=timezone.utc).timestamp())


def simulate(n=60_000, seed=8):
    rng = np.random.default_rng(seed)
    ts = np.sort(START + rng.integers(0, 60 * 86400, size=n))
    rel = ts - START
    day = 2 * np.pi * rel / 86400
    temp = 14 + 6 * np.sin(day - 2.0) + rng.normal(0, 1.5, n)
    press = np.tanh(3 * np.sin(2 * np.pi * ts / 450.0))
    pump = np.sin(2 * np.pi * ts / 110.0) + 0.5 * np.cos(4 * np.pi * ts / 110.0)
    shift = 1 / (1 + np.exp(-6 * np.sin(day - 1.2)))
    load = 40 + 18 * shift + 9 * press * (0.4 + 0.6 * shift) + 6 * pump + 0.5 * np.maximum(temp - 16, 0) ** 1.5
    load += rng.normal(0, 1.0, n)
    return ts, temp.astype(np.float32), load.astype(np.float32)


class TimeEncoding(nn.Module):
    def __init__(self, periods):
        super().__init__()
        dtype = torch.float64 if os.environ.get("MENDED") == "1" else torch.float32
        self.register_buffer("omega", 2 * torch.pi / torch.tensor(periods, dtype=dtype))

    def forward(self, t):
        angle = t.to(self.omega.dtype)[:, None] * self.omega
        angle = torch.cat([angle, 2 * angle], dim=1)
        return torch.cat([angle.sin(), angle.cos()], dim=1).float()


class LoadModel(nn.Module):
    def __init__(self, width=320):
        super().__init__()
        self.enc = TimeEncoding(PERIODS)
        self.mlp = nn.Sequential(
            nn.Linear(4 * len(PERIODS) + 1, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, 1),
        )

    def forward(self, t, temp):
        return self.mlp(torch.cat([self.enc(t), temp[:, None]], dim=1)).squeeze(1)


def rmse(model, loader, scale):
    model.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for t, temp, y in loader:
            total += (model(t, temp) - y).pow(2).sum().item()
            count += len(y)
    model.train()
    return (total / count) ** 0.5 * scale


def main():
    ts, temp, load = simulate()
    order = np.random.default_rng(0).permutation(len(ts))
    cut = int(0.9 * len(ts))
    tr, va = order[:cut], order[cut:]
    t_mu, t_sd = temp[tr].mean(), temp[tr].std()
    y_mu, y_sd = load[tr].mean(), load[tr].std()

    def dataset(idx):
        return TensorDataset(
            torch.from_numpy(ts[idx]),
            torch.from_numpy((temp[idx] - t_mu) / t_sd),
            torch.from_numpy((load[idx] - y_mu) / y_sd),
        )

    train_loader = DataLoader(dataset(tr), batch_size=512, shuffle=True, drop_last=True)
    val_loader = DataLoader(dataset(va), batch_size=2000)
    model = LoadModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    epochs = 6
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=epochs * len(train_loader))
    step = 0
    for epoch in range(epochs):
        for t, tmp, y in train_loader:
            loss = nn.functional.mse_loss(model(t, tmp), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            step += 1
            if step % 30 == 0:
                print(f"epoch {epoch} step {step:4d} mse {loss.item():.4f}", flush=True)
        print(f"epoch {epoch}: validation RMSE {rmse(model, val_loader, y_sd):.2f} kW", flush=True)


if __name__ == "__main__":
    main()
