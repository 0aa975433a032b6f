# expect: healthy
# symptom: the training loss rises in steps (at 120, 240, 360, 480): by design, the rollout horizon doubles there; the fixed 16-step validation error keeps falling
# axis: none
# mended: none
import time

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(1)
DT, BATCH, STEPS = 0.1, 64, 600
HORIZONS = [(0, 1), (120, 2), (240, 4), (360, 8), (480, 16)]


def accel(s):
    a1, a2, w1, w2 = s
    g, d = 9.81, a1 - a2
    den = 3 - np.cos(2 * d)
    p = (-3 * g * np.sin(a1) - g * np.sin(a1 - 2 * a2) - 2 * np.sin(d) * (w2**2 + w1**2 * np.cos(d))) / den
    q = 2 * np.sin(d) * (2 * w1**2 + 2 * g * np.cos(a1) + w2**2 * np.cos(d)) / den
    return np.stack([w1, w2, p - 0.15 * w1, q - 0.15 * w2])


def simulate(n, length, seed):
    """double pendulum trajectories with Runge-Kutta, recorded every DT"""
    rng = np.random.default_rng(seed)
    s = np.concatenate([rng.uniform(-1.4, 1.4, (2, n)), rng.normal(0, 0.7, (2, n))])
    out, h = [], DT / 4
    for _ in range(length):
        out.append(s.T.copy())
        for _ in range(4):
            k1 = accel(s)
            k2 = accel(s + h / 2 * k1)
            k3 = accel(s + h / 2 * k2)
            k4 = accel(s + h * k3)
            s = s + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return torch.tensor(np.stack(out, 1), dtype=torch.float32)


class Stepper(nn.Module):
    def __init__(self, scale, width=96):
        super().__init__()
        self.register_buffer("scale", scale)
        self.net = nn.Sequential(
            nn.Linear(6, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 4)
        )

    def forward(self, s):
        ang, vel = s[..., :2], s[..., 2:]
        return s + self.net(torch.cat([ang.sin(), ang.cos(), vel / 3], -1)) * self.scale

    def rollout(self, s, n):
        out = []
        for _ in range(n):
            s = self(s)
            out.append(s)
        return torch.stack(out, 1)


def horizon_at(step):
    return [h for s, h in HORIZONS if step >= s][-1]


data, val = simulate(400, 80, 0), simulate(128, 17, 1)
scale = (data[:, 1:] - data[:, :-1]).std((0, 1))
norm = data.std((0, 1))
model = Stepper(scale)
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS, 5e-5)
t0 = time.time()
for step in range(STEPS):
    h = horizon_at(step)
    traj = torch.randint(0, len(data), (BATCH,))
    start = torch.randint(0, data.shape[1] - h, (BATCH,))
    window = data[traj[:, None], start[:, None] + torch.arange(h + 1)]
    err = (model.rollout(window[:, 0], h) - window[:, 1:]) / norm
    loss = err.pow(2).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
    if step % 20 == 0:
        print(f"step {step:4d} horizon {h:2d} loss {loss.item():.5f}")
    if step % 60 == 59:
        with torch.no_grad():
            v = ((model.rollout(val[:, 0], 16) - val[:, 1:]) / norm).pow(2).mean().item()
        print(f"== step {step} val 16-step error {v:.4f} ({time.time() - t0:.1f}s)")
