# expect: sick
# symptom: the forecast error falls for a long while, then sudden huge spikes come again and again and training never recovers
# axis: precision
# cause: the running feature variance is computed as E[x^2] - E[x]^2 from float32 sums, which for a channel with a large mean and a small spread is catastrophic cancellation, so the standard deviation collapses to the floor and the scaled input becomes huge
# says: cancellation|(float32|float ?32|single precision|fp32|32-bit|float64|double|precision|round|numerical|numeric).{0,260}(varian|std|standard dev|running (sum|stat|moment)|sum of squares|sums? |scaler|normali[sz])|(varian|std|standard dev|running (sum|stat|moment)|sum of squares|scaler|normali[sz]|E\[x).{0,260}(cancel|float32|single precision|fp32|float64|double|precision|rounding|round-?off|welford|numerically)
# onset_step: 347
# fix: keep the two running sums in float64
# mended: yes
"""Day-ahead style load forecasting for a power feeder from a live telemetry stream."""

import math
import os
from collections import deque

import torch
from torch import nn

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"

CHANNELS = ["load_kw", "frequency_mhz", "voltage_dv", "temp_c", "hour_sin", "hour_cos"]
WINDOW = 24
SITES = 32
STEPS = 700


class TelemetryStream:
    """Endless batches of windows from simulated feeders, as the collector would deliver them."""

    def __init__(self, seed):
        self.gen = torch.Generator().manual_seed(seed)

    def noise(self, *shape):
        return torch.randn(*shape, generator=self.gen)

    def next(self, n=SITES):
        span = WINDOW + 1
        start = torch.rand(n, 1, generator=self.gen) * 24
        hour = (start + torch.arange(span)) * 2 * math.pi / 24
        temp = 14 + 6 * self.noise(n, 1) + 5 * torch.sin(hour - 2) + 0.5 * self.noise(n, span)
        sag = self.noise(n, span)
        for k in range(1, span):
            sag[:, k] = 0.9 * sag[:, k - 1] + 0.43 * sag[:, k]
        base = 300 + 60 * self.noise(n, 1)
        load = base + 90 * torch.sin(hour - 1.2) + 4 * (temp - 14).abs()
        load[:, 1:] += 45 * sag[:, :-1]
        load = load + 6 * self.noise(n, span)
        freq = 50000 - 45 * sag + 3 * self.noise(n, span)
        volt = 2300 - 0.05 * load + 4 * self.noise(n, span)
        x = torch.stack([load, freq, volt, temp, hour.sin(), hour.cos()], -1)
        return x[:, :WINDOW], load[:, WINDOW]


class StreamScaler:
    """Standardises each channel with the statistics of everything seen so far."""

    def __init__(self, n_channels):
        dtype = torch.float64 if MENDED else torch.float32
        self.count = 0
        self.total = torch.zeros(n_channels, dtype=dtype)
        self.total_sq = torch.zeros(n_channels, dtype=dtype)

    def update(self, x):
        rows = x.reshape(-1, x.shape[-1]).to(self.total.dtype)
        self.count += rows.shape[0]
        self.total += rows.sum(0)
        self.total_sq += rows.square().sum(0)

    def moments(self):
        mean = self.total / self.count
        var = self.total_sq / self.count - mean.square()
        return mean, var.clamp_min(1e-6).sqrt()

    def __call__(self, x):
        mean, std = self.moments()
        return ((x - mean) / std).float()


class Forecaster(nn.Module):
    def __init__(self, n_channels, width=88):
        super().__init__()
        self.inp = nn.Conv1d(n_channels, width, 3)
        self.res = nn.ModuleList(nn.Conv1d(width, width, 3, dilation=d, padding=d) for d in (1, 2, 4))
        self.out = nn.Linear(width + n_channels, 1)

    def forward(self, x):
        h = torch.relu(self.inp(x.transpose(1, 2)))
        for conv in self.res:
            h = h + torch.relu(conv(h))
        return self.out(torch.cat([h[:, :, -1], x[:, -1]], -1)).squeeze(-1)


def run():
    torch.manual_seed(4)
    stream = TelemetryStream(1)
    scaler = StreamScaler(len(CHANNELS))
    model = Forecaster(len(CHANNELS))
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    recent = deque(maxlen=25)

    for step in range(1, STEPS + 1):
        x, load = stream.next()
        scaler.update(x)
        target = (load - 300) / 100
        loss = nn.functional.mse_loss(model(scaler(x)), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        recent.append(loss.item())
        if step % 25 == 0:
            print(f"batch {step:4d}   mse {loss.item():.4f}   mean of last 25 {sum(recent) / len(recent):.4f}")

    x, load = TelemetryStream(999).next(512)
    with torch.no_grad():
        pred = model(scaler(x)) * 100 + 300
    print(f"test MAE {(pred - load).abs().mean():.1f} kW")


if __name__ == "__main__":
    run()
