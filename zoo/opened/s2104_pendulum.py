# expect: sick
# symptom: rollout loss gets rougher as the horizon grows, spikes, then turns NaN for good although gradient clipping is in the code
# axis: optimizer
# cause: gradient clipping is called before backward(), when the gradients are still empty, so it never clips and long rollouts give exploding updates
# says: (?=[\s\S]*clip)(?=[\s\S]*(before|no[- ]?op|no effect|never|not (being )?(applied|clipp|bound|limit)|in ?effective|ineffective|wrong (order|place)|empty|too early|does nothing|n't clip|after zero|order|unclipped|without))
# onset_step: 239
# fix: move clip_grad_norm_ between loss.backward() and optimizer.step()
# mended: yes
import argparse
import math
import os
import sys

import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


def parse():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=400)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--lr", type=float, default=0.05)
    ap.add_argument("--momentum", type=float, default=0.9)
    ap.add_argument("--clip", type=float, default=0.25)
    ap.add_argument("--dt", type=float, default=0.08)
    ap.add_argument("--horizon", type=int, default=48)
    ap.add_argument("--seed", type=int, default=4)
    return ap.parse_args(sys.argv[1:])


def true_field(s, t):
    """Driven, damped double-well oscillator with a coupled pendulum."""
    x, v, th, w = s.unbind(-1)
    ax = x - x**3 - 0.15 * v + 0.35 * torch.cos(1.2 * t) + 0.2 * torch.sin(th)
    aw = -1.5 * torch.sin(th) - 0.1 * w + 0.3 * x
    return torch.stack([v, ax, w, aw], -1)


@torch.no_grad()
def simulate(n, steps, dt, gen, sub=4):
    s = torch.randn(n, 4, generator=gen) * torch.tensor([1.0, 0.8, 1.0, 0.8])
    t = torch.rand(n, generator=gen) * 2 * math.pi / 1.2
    out, times = [s], [t]
    h = dt / sub
    for _ in range(steps):
        for _ in range(sub):
            k1 = true_field(s, t)
            k2 = true_field(s + 0.5 * h * k1, t + 0.5 * h)
            s, t = s + h * k2, t + h
        out.append(s)
        times.append(t)
    return torch.stack(out, 1), torch.stack(times, 1)


class LearnedField(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(6, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 4)
        )
        self.cubic = nn.Linear(4, 4, bias=False)
        nn.init.normal_(self.cubic.weight, std=0.01)

    def forward(self, s, t):
        z = torch.cat([s, torch.cos(1.2 * t)[:, None], torch.sin(1.2 * t)[:, None]], -1)
        return self.net(z) + self.cubic(s.clamp(-2.5, 2.5) ** 3)


def rollout(field, s0, t0, steps, dt):
    s, states = s0, []
    for k in range(steps):
        t = t0 + k * dt
        k1 = field(s, t)
        k2 = field(s + 0.5 * dt * k1, t + 0.5 * dt)
        s = s + dt * k2
        states.append(s)
    return torch.stack(states, 1)


class Curriculum:
    """Rollout length grows from 4 to the full horizon over the first 60 % of training."""

    def __init__(self, total, horizon):
        self.total, self.horizon = total, horizon

    def __call__(self, step):
        frac = min(1.0, step / (0.6 * self.total))
        return int(4 + frac * (self.horizon - 4))


def train(args):
    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed)
    states, times = simulate(512, args.horizon, args.dt, gen)
    val_s, val_t = simulate(64, args.horizon, args.dt, gen)
    field = LearnedField()
    opt = torch.optim.SGD(field.parameters(), lr=args.lr, momentum=args.momentum, nesterov=True)
    horizon_at = Curriculum(args.steps, args.horizon)
    for step in range(args.steps):
        h = horizon_at(step)
        idx = torch.randint(0, len(states), (args.batch,), generator=gen)
        pred = rollout(field, states[idx, 0], times[idx, 0], h, args.dt)
        loss = (pred - states[idx, 1 : h + 1]).pow(2).mean()
        opt.zero_grad()
        if not MENDED:
            nn.utils.clip_grad_norm_(field.parameters(), args.clip)
        loss.backward()
        if MENDED:
            nn.utils.clip_grad_norm_(field.parameters(), args.clip)
        opt.step()
        if step % 10 == 0:
            print(f"step {step:4d} horizon {h:2d} loss {loss.item():.5g}")
        if step % 100 == 99:
            with torch.no_grad():
                p = rollout(field, val_s[:, 0], val_t[:, 0], args.horizon, args.dt)
                print(f"  val rollout mse {(p - val_s[:, 1:]).pow(2).mean().item():.5g}")


if __name__ == "__main__":
    train(parse())
