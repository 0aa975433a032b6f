# expect: sick
# symptom: the regression learns only the slow part of the load, the error stops at a high level, R2 stays low
# axis: precision
# cause: Unix time in seconds is cast to float32 (steps of 128 s) before the phase of the 180 s cycle is computed
# says: (float|precision|round|resolution|mantissa|cast).*(time|stamp|epoch|second)|(time|stamp).*(float|precis)
# onset_step: 0
# fix: subtract the first time stamp in double precision before the cast to float32
# mended: the script applies that change if the environment has MENDED=1
"""Power draw of a press line from clock features and machine settings."""

import os

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
FLAG = os.environ.get("MENDED") == "1"
DAY, CYCLE = 86_400.0, 180.0
STEPS, BATCH = 400, 256


def read_meter(n, rng):
    """Meter readings at irregular times of about a week."""
    start = 1_712_345_678.0
    stamp = np.sort(start + rng.uniform(0, 7 * DAY, n))
    speed = rng.uniform(0.7, 1.3, n)
    mould = rng.integers(0, 4, n)
    day = np.sin(2 * np.pi * (stamp - start) / DAY)
    ph = 2 * np.pi * (stamp - start) / CYCLE
    stroke = 1.6 * np.sin(ph) + 0.9 * np.cos(2 * ph) * np.array([0.4, 0.8, 1.2, 1.6])[mould]
    power = 12 + 1.0 * day + 1.5 * speed**2 + speed * stroke + 0.15 * rng.normal(size=n)
    return stamp, speed, mould, power


class ClockFeatures:
    """Sine and cosine of the working day and of the press cycle."""

    def __init__(self, stamp):
        self.origin = stamp[0] if FLAG else 0.0

    def __call__(self, stamp):
        t = torch.from_numpy(stamp - self.origin).float()
        cols = []
        for period, harmonics in ((DAY, 2), (CYCLE, 3)):
            phase = torch.remainder(t, period) / period * (2 * np.pi)
            for k in range(1, harmonics + 1):
                cols += [torch.sin(k * phase), torch.cos(k * phase)]
        return torch.stack(cols, 1)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.f = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, x):
        return x + self.f(x)


class LoadModel(nn.Module):
    def __init__(self, clock_dim, width=64):
        super().__init__()
        self.mould = nn.Embedding(4, 6)
        self.inp = nn.Linear(clock_dim + 1 + 6, width)
        self.body = nn.Sequential(Residual(width), Residual(width))
        self.out = nn.Linear(width, 1)

    def forward(self, clock, speed, mould):
        z = torch.cat([clock, speed.unsqueeze(1), self.mould(mould)], 1)
        return self.out(self.body(self.inp(z))).squeeze(1)


def r2(pred, y):
    return 1 - ((pred - y) ** 2).mean().item() / y.var(unbiased=False).item()


def main():
    torch.manual_seed(8)
    rng = np.random.default_rng(8)
    stamp, speed, mould, power = read_meter(16_000, rng)
    clock = ClockFeatures(stamp)(stamp)
    speed = torch.from_numpy((speed - speed.mean()) / speed.std()).float()
    mould = torch.from_numpy(mould)
    mean, std = power.mean(), power.std()
    y = torch.from_numpy((power - mean) / std).float()
    order = torch.from_numpy(rng.permutation(len(y)))
    train, test = order[:14_000], order[14_000:]
    model = LoadModel(clock.size(1))
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS, eta_min=1e-5)
    loss_fn = nn.SmoothL1Loss()
    running = None
    for step in range(1, STEPS + 1):
        pick = train[torch.randint(len(train), (BATCH,))]
        loss = loss_fn(model(clock[pick], speed[pick], mould[pick]), y[pick])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        running = loss.item() if running is None else 0.95 * running + 0.05 * loss.item()
        if step % 25 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} running {running:.4f}")
    model.eval()
    with torch.no_grad():
        pred = model(clock[test], speed[test], mould[test])
    print(
        f"final running loss {running:.4f} test R2 {r2(pred, y[test]):.4f} "
        f"test MAE {(pred - y[test]).abs().mean().item() * std:.3f} kW"
    )


if __name__ == "__main__":
    main()
