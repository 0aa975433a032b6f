# expect: healthy
# symptom: resembles a broken schedule or lost optimizer state: the loss jumps up at regular intervals when the rate leaps back and the momentum is thrown away
# axis: schedule
"""Snapshot ensemble of a dilated causal conv net forecasting household load 6 hours ahead.

Every cycle starts from the last weights with a large rate and new optimizer buffers
and ends with a snapshot; forecasts are averaged over the last snapshots.
"""

import copy
import math
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)


@dataclass
class Settings:
    history: int = 64
    horizon: int = 6
    channels: int = 24
    cycle: int = 100
    cycles: int = 5
    peak: float = 0.08
    batch: int = 32
    seed: int = 13


def simulate_load(hours, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    day = np.sin(2 * np.pi * (t - 7) / 24) + 0.5 * np.sin(4 * np.pi * (t - 3) / 24)
    week = 0.6 * ((t // 24) % 7 >= 5)
    noise = np.zeros(hours)
    for i in range(1, hours):
        noise[i] = 0.85 * noise[i - 1] + 0.2 * rng.normal()
    appliance = np.convolve((rng.random(hours) < 0.03).astype(float), [1.2, 1.2, 0.8, 0.4])[:hours]
    return (day + week + noise + appliance).astype(np.float32)


class Causal(nn.Module):
    def __init__(self, c_in, c_out, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(c_in, 2 * c_out, 3, dilation=dilation)
        self.skip = nn.Conv1d(c_in, c_out, 1) if c_in != c_out else nn.Identity()

    def forward(self, x):
        a, b = self.conv(nn.functional.pad(x, (self.pad, 0))).chunk(2, 1)
        return self.skip(x) + torch.tanh(a) * torch.sigmoid(b)


class Forecaster(nn.Module):
    def __init__(self, s: Settings):
        super().__init__()
        dims = [1] + [s.channels] * 5
        self.net = nn.Sequential(*[Causal(dims[i], dims[i + 1], 2**i) for i in range(5)])
        self.head = nn.Linear(s.channels, s.horizon)

    def forward(self, x):
        return self.head(self.net(x.unsqueeze(1))[..., -1])


def windows(series, s, starts):
    idx = starts[:, None] + np.arange(s.history + s.horizon)[None]
    w = torch.from_numpy(series[idx])
    return w[:, : s.history], w[:, s.history :]


def main():
    s = Settings()
    torch.manual_seed(s.seed)
    rng = np.random.default_rng(s.seed)
    series = simulate_load(9000, 1)
    cut = 7600
    mean, std = series[:cut].mean(), series[:cut].std()
    series = (series - mean) / std
    span = s.history + s.horizon
    xv, yv = windows(series, s, np.arange(cut, len(series) - span, 3))
    naive = (xv[:, -24 : -24 + s.horizon] - yv).abs().mean().item()
    print(f"seasonal naive MAE {naive:.3f}")

    model, snapshots, begin = Forecaster(s), [], time.time()
    for c in range(s.cycles):
        opt = torch.optim.SGD(model.parameters(), lr=s.peak, momentum=0.9)
        for k in range(s.cycle):
            for group in opt.param_groups:
                group["lr"] = 0.5 * s.peak * (1 + math.cos(math.pi * k / s.cycle))
            x, y = windows(series, s, rng.integers(0, cut - span, s.batch))
            loss = nn.functional.smooth_l1_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            if (k + 1) % 20 == 0:
                print(f"cycle {c} it {k + 1:3d} lr {opt.param_groups[0]['lr']:.4f} loss {loss.item():.4f}", flush=True)
        snapshots.append(copy.deepcopy(model).eval())
        with torch.no_grad():
            one = (model(xv) - yv).abs().mean().item()
            many = (torch.stack([m(xv) for m in snapshots[-3:]]).mean(0) - yv).abs().mean().item()
        print(f"cycle {c} done: MAE {one:.3f}, ensemble {many:.3f}, {time.time() - begin:.1f}s", flush=True)


if __name__ == "__main__":
    main()
