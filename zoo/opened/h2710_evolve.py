# expect: healthy
# symptom: resembles a broken training loop: no backward call, gradients put in by hand, a fitness that jumps about from generation to generation
# axis: optimizer
"""Swing-up of a torque-limited pendulum with evolution strategies (antithetic sampling, rank shaping, Adam)."""

import math
import time

import torch
import torch.nn as nn
from torch.nn.utils import parameters_to_vector

torch.set_num_threads(1)
torch.manual_seed(5)

POP, SIGMA, LR, GENERATIONS = 128, 0.15, 0.02, 240
HORIZON, DT, TASKS = 100, 0.05, 16
HIDDEN = 16
sizes = [(HIDDEN, 3), (HIDDEN,), (1, HIDDEN), (1,)]


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = nn.Linear(3, HIDDEN)
        self.l2 = nn.Linear(HIDDEN, 1)
        nn.init.zeros_(self.l2.weight)
        nn.init.zeros_(self.l2.bias)


def unflatten(theta):
    """(P, n) parameter vectors -> batched layer weights."""
    out, at = [], 0
    for s in sizes:
        n = math.prod(s)
        out.append(theta[:, at : at + n].reshape(-1, *s))
        at += n
    return out


@torch.no_grad()
def rollout(theta, start):
    """Mean cost per step of every candidate on every start state."""
    w1, b1, w2, b2 = unflatten(theta)
    ang = start[None, :, 0].expand(len(theta), -1).clone()
    vel = start[None, :, 1].expand(len(theta), -1).clone()
    cost = torch.zeros_like(ang)
    for _ in range(HORIZON):
        obs = torch.stack([ang.cos(), ang.sin(), vel / 8], -1)
        h = torch.tanh(obs @ w1.transpose(1, 2) + b1[:, None])
        u = 4.0 * torch.tanh(h @ w2.transpose(1, 2) + b2[:, None]).squeeze(-1)
        wrapped = torch.remainder(ang + math.pi, 2 * math.pi) - math.pi
        cost += wrapped**2 + 0.1 * vel**2 + 0.001 * u**2
        vel = (vel + DT * (15 * ang.sin() + 3 * u)).clamp(-8, 8)
        ang = ang + DT * vel
    return (cost / HORIZON).mean(1)


def starts(n, gen=None):
    s = torch.rand(n, 2, generator=gen) * 2 - 1
    return torch.stack([math.pi + 1.0 * s[:, 0], s[:, 1]], 1)


def centred_ranks(x):
    r = torch.empty_like(x)
    r[x.argsort()] = torch.arange(len(x), dtype=x.dtype)
    return r / (len(x) - 1) - 0.5


def main():
    policy = Policy()
    opt = torch.optim.Adam(policy.parameters(), lr=LR, betas=(0.9, 0.99))
    decay = torch.optim.lr_scheduler.ExponentialLR(opt, 0.99)
    exam = starts(64, torch.Generator().manual_seed(1))
    t0 = time.time()
    for gen in range(GENERATIONS):
        theta = parameters_to_vector(policy.parameters()).detach()
        eps = torch.randn(POP // 2, len(theta))
        eps = torch.cat([eps, -eps])
        cost = rollout(theta + SIGMA * eps, starts(TASKS))
        direction = (centred_ranks(cost)[:, None] * eps).mean(0) / SIGMA
        direction = direction + 0.002 * theta
        opt.zero_grad()
        at = 0
        for p in policy.parameters():
            p.grad = direction[at : at + p.numel()].view_as(p).clone()
            at += p.numel()
        opt.step()
        decay.step()
        if gen % 20 == 0 or gen == GENERATIONS - 1:
            now = parameters_to_vector(policy.parameters()).detach()
            print(
                f"gen {gen:4d}  loss {cost.mean().item():.4f}  best {cost.min().item():.4f}  "
                f"exam cost {rollout(now[None], exam).item():.4f}  |theta| {now.norm().item():.2f}  "
                f"{time.time() - t0:.0f}s",
                flush=True,
            )


if __name__ == "__main__":
    main()
