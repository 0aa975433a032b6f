# expect: sick
# symptom: the forecast loss spikes again and again by orders of magnitude and never settles
# axis: precision
# cause: the running variance E[x^2]-E[x]^2 in float32 cancels for a channel of huge mean, so scales are garbage
# says: cancel|(varian|squar|\bstd|normali).*(float32|fp32|single.prec|precision|round|double|float64|large mean)
# onset_step: 0
# fix: keep the running sums of the normaliser in float64
# mended: the script applies that change if the environment has MENDED=1
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
STATS_DTYPE = torch.float64 if MENDED else torch.float32
WINDOW, HORIZON, BATCH, STEPS = 48, 6, 32, 350


def weather_station(hours=6000, seed=0):
    """Pressure in Pa, temperature in C, relative humidity in percent, wind in m/s."""
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    front = np.zeros(hours)
    for i in range(1, hours):
        front[i] = 0.985 * front[i - 1] + rng.normal(0, 0.17)
    pressure = 101325 + 18 * np.sin(2 * math.pi * t / 12) + 14 * front + rng.normal(0, 1.0, hours)
    temp = 12 + 6 * np.sin(2 * math.pi * (t - 9) / 24) - 2.5 * np.roll(front, 4) + rng.normal(0, 0.4, hours)
    hum = 65 - 2.0 * (temp - 12) + rng.normal(0, 2.0, hours)
    wind = np.abs(4 + 1.5 * np.roll(front, 2) + rng.normal(0, 0.6, hours))
    return torch.tensor(np.stack([pressure, temp, hum, wind], 1), dtype=torch.float32)


class StreamNorm(nn.Module):
    """Standardises each channel by the statistics of all that it has seen."""

    def __init__(self, channels, eps=1e-4):
        super().__init__()
        self.eps = eps
        self.register_buffer("count", torch.zeros((), dtype=STATS_DTYPE))
        self.register_buffer("total", torch.zeros(channels, dtype=STATS_DTYPE))
        self.register_buffer("square", torch.zeros(channels, dtype=STATS_DTYPE))

    @torch.no_grad()
    def observe(self, x):
        flat = x.reshape(-1, x.size(-1)).to(self.total.dtype)
        self.count += flat.size(0)
        self.total += flat.sum(0)
        self.square += flat.pow(2).sum(0)

    def forward(self, x):
        if self.training:
            self.observe(x)
        mean = self.total / self.count
        var = (self.square / self.count - mean.pow(2)).clamp_min(self.eps)
        return ((x - mean) / var.sqrt()).to(x.dtype)


class CausalBlock(nn.Module):
    def __init__(self, c, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(c, c, 3, dilation=dilation)
        self.mix = nn.Conv1d(c, c, 1)

    def forward(self, x):
        return x + self.mix(F.relu(self.conv(F.pad(x, (self.pad, 0)))))


class Forecaster(nn.Module):
    def __init__(self, channels=4, width=32):
        super().__init__()
        self.norm = StreamNorm(channels)
        self.stem = nn.Conv1d(channels, width, 1)
        self.blocks = nn.Sequential(*[CausalBlock(width, d) for d in (1, 2, 4, 8)])
        self.head = nn.Linear(width, HORIZON)

    def forward(self, x):
        z = self.stem(self.norm(x).transpose(1, 2))
        return self.head(self.blocks(z)[..., -1])


def windows(series, starts):
    x = torch.stack([series[s : s + WINDOW] for s in starts])
    y = torch.stack([series[s + WINDOW : s + WINDOW + HORIZON, 1] for s in starts])
    return x, (y - 12.0) / 5.0


def main():
    torch.manual_seed(4)
    gen = torch.Generator().manual_seed(8)
    series = weather_station()
    split = 5000
    model = Forecaster()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS, eta_min=1e-4)
    worst = 0.0
    for step in range(STEPS):
        starts = torch.randint(0, split - WINDOW - HORIZON, (BATCH,), generator=gen).tolist()
        x, y = windows(series, starts)
        loss = F.mse_loss(model(x), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        worst = max(worst, loss.item() if step >= 100 else 0.0)
        if step % 20 == 0 or step == STEPS - 1:
            print(f"step {step:4d} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.2e}")
    model.eval()
    with torch.no_grad():
        x, y = windows(series, range(split, len(series) - WINDOW - HORIZON, 3))
        val = F.mse_loss(model(x), y).item()
    print(f"validation mse {val:.4f} (worst training loss after step 100: {worst:.3f})")


if __name__ == "__main__":
    main()
