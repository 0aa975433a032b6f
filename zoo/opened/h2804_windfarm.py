# expect: healthy
# symptom: the first gradients are inf and the first updates are skipped, the loss scale is halved again and again, resembles an fp16 overflow
# axis: precision
"""Forecast wind power 8 steps ahead from 48 steps of 6 channels (half precision with a loss scaler)."""

import math
import time

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)

PAST, AHEAD, CH = 48, 8, 6


def simulate(n, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(n)
    gust = np.zeros(n)
    for i in range(1, n):
        gust[i] = 0.93 * gust[i - 1] + rng.normal(0, 0.35)
    base = 8 + 2.5 * np.sin(2 * np.pi * t / 24) + 1.5 * np.sin(2 * np.pi * t / 113 + 1)
    speed = np.clip(base + gust, 0, None)
    power = 1 / (1 + np.exp(-(speed - 8.5) / 1.3)) + rng.normal(0, 0.02, n)
    angle = 0.02 * np.cumsum(rng.normal(0, 1, n))
    cols = [
        power,
        speed + rng.normal(0, 0.3, n),
        np.sin(angle),
        np.cos(angle),
        np.sin(2 * np.pi * t / 24),
        np.cos(2 * np.pi * t / 24),
    ]
    return np.stack(cols, 1).astype(np.float32)


def windows(series, mean, std):
    z = torch.from_numpy((series - mean) / std)
    w = z.unfold(0, PAST + AHEAD, 1).transpose(1, 2)
    return w[:, :PAST].contiguous(), w[:, PAST:, 0].contiguous()


class Mixer(nn.Module):
    """TSMixer like: alternate mixing over time and over channels."""

    def __init__(self, d=32, depth=3):
        super().__init__()
        self.inp = nn.Linear(CH, d)
        self.time = nn.ModuleList(nn.Sequential(nn.Linear(PAST, PAST), nn.GELU()) for _ in range(depth))
        self.chan = nn.ModuleList(
            nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)) for _ in range(depth)
        )
        self.n1 = nn.ModuleList(nn.LayerNorm(d) for _ in range(depth))
        self.n2 = nn.ModuleList(nn.LayerNorm(d) for _ in range(depth))
        self.out = nn.Linear(PAST * d, AHEAD)

    def forward(self, x):
        h = self.inp(x)
        for tm, cm, a, b in zip(self.time, self.chan, self.n1, self.n2):
            h = h + tm(a(h).transpose(1, 2)).transpose(1, 2)
            h = h + cm(b(h))
        return self.out(h.flatten(1))


class Run:
    def __init__(self, steps=300, batch=32, lr=1.5e-3):
        torch.manual_seed(8)
        train, valid = simulate(6000, 1), simulate(1500, 2)
        mean, std = train.mean(0), train.std(0)
        self.x, self.y = windows(train, mean, std)
        self.xv, self.yv = windows(valid, mean, std)
        self.model = Mixer()
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=lr, weight_decay=1e-2)
        self.sched = torch.optim.lr_scheduler.LambdaLR(
            self.opt, lambda s: min(1, (s + 1) / 30) * 0.5 * (1 + math.cos(math.pi * min(1, s / steps)))
        )
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=200)
        self.steps, self.batch = steps, batch

    def forward_loss(self, x, y):
        with torch.autocast("cpu", dtype=torch.float16):
            pred = self.model(x)
        return nn.functional.huber_loss(pred.float(), y)

    def validate(self):
        self.model.eval()
        with torch.no_grad():
            v = self.forward_loss(self.xv, self.yv).item()
        self.model.train()
        return v

    def go(self):
        t0, skipped = time.time(), 0
        naive = nn.functional.huber_loss(self.xv[:, -1:, 0].expand_as(self.yv), self.yv).item()
        print(f"persistence forecast {naive:.4f}, untrained {self.validate():.4f}")
        for step in range(1, self.steps + 1):
            i = torch.randint(0, len(self.x), (self.batch,))
            loss = self.forward_loss(self.x[i], self.y[i])
            self.opt.zero_grad(set_to_none=True)
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.opt)
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            before = self.scaler.get_scale()
            self.scaler.step(self.opt)
            self.scaler.update()
            if self.scaler.get_scale() < before:
                skipped += 1
            else:
                self.sched.step()
            if step <= 10 or step % 30 == 0:
                print(
                    f"step {step:4d} loss {loss.item():.4f} norm {norm.item():.3f} scale {before:.0f} skipped {skipped}"
                )
            if step % 75 == 0:
                print(f"   valid {self.validate():.4f}  {time.time() - t0:.1f}s")


if __name__ == "__main__":
    Run().go()
