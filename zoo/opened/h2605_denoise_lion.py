# expect: healthy
# symptom: resembles an optimizer fault: every update has the same size whatever the gradient, the loss is very noisy, and now and then a batch is eight times larger
# axis: optimizer
"""Diffusion model for short pulse waveforms, trained with a sign-momentum optimizer."""

import copy
import math
import random

import torch
import torch.nn as nn
from torch.optim import Optimizer

torch.set_num_threads(1)
random.seed(0)
torch.manual_seed(0)
LENGTH, T, STEPS = 32, 100, 800


class Lion(Optimizer):
    """Chen et al. 2023, "Symbolic discovery of optimization algorithms"."""

    def __init__(self, params, lr=3e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                st = self.state[p]
                if not st:
                    st["m"] = torch.zeros_like(p)
                m = st["m"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                direction = (m * b1 + p.grad * (1 - b1)).sign_()
                p.add_(direction, alpha=-group["lr"])
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


def pulses(n):
    """Gaussian bursts with random place, width, carrier and sign."""
    t = torch.linspace(-1, 1, LENGTH)
    c = torch.rand(n, 1) * 0.8 - 0.4
    w = 0.15 + 0.2 * torch.rand(n, 1)
    f = torch.where(torch.rand(n, 1) < 0.5, 6.0, 12.0)
    sign = torch.where(torch.rand(n, 1) < 0.5, -1.0, 1.0)
    return 2.0 * sign * torch.exp(-(((t - c) / w) ** 2)) * torch.cos(f * (t - c))


alpha_bar = torch.cos((torch.arange(T) + 1) / (T + 1) * math.pi / 2) ** 2
alpha_bar = alpha_bar.clamp(1e-3, 0.9999)


def time_features(t, dim=32):
    freq = torch.exp(torch.arange(dim // 2) * (-math.log(1000.0) / (dim // 2)))
    ang = t[:, None].float() * freq[None]
    return torch.cat([ang.sin(), ang.cos()], 1)


class Denoiser(nn.Module):
    def __init__(self, width=160, depth=3):
        super().__init__()
        self.inp = nn.Linear(LENGTH, width)
        self.temb = nn.Sequential(nn.Linear(32, width), nn.SiLU(), nn.Linear(width, 2 * width * depth))
        self.norms = nn.ModuleList([nn.LayerNorm(width, elementwise_affine=False) for _ in range(depth)])
        self.ff = nn.ModuleList(
            [nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width)) for _ in range(depth)]
        )
        self.out = nn.Linear(width, LENGTH)
        for f in self.ff:
            nn.init.zeros_(f[2].weight)

    def forward(self, x, t):
        h = self.inp(x)
        mods = self.temb(time_features(t)).chunk(2 * len(self.ff), 1)
        for i, (norm, f) in enumerate(zip(self.norms, self.ff)):
            h = h + f(norm(h) * (1 + mods[2 * i]) + mods[2 * i + 1])
        return self.out(h)


def diffusion_loss(model, x0):
    t = torch.randint(T, (len(x0),))
    noise = torch.randn_like(x0)
    a = alpha_bar[t, None]
    return ((model(a.sqrt() * x0 + (1 - a).sqrt() * noise, t) - noise) ** 2).mean()


model = Denoiser()
average = copy.deepcopy(model).requires_grad_(False)
opt = Lion(model.parameters(), lr=4e-4, weight_decay=0.1)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 50) * (1 - s / STEPS) ** 0.5)
held_out = pulses(1000)


@torch.no_grad()
def held_out_loss(net):
    with torch.random.fork_rng():
        torch.manual_seed(123)
        return sum(diffusion_loss(net, held_out).item() for _ in range(4)) / 4


for step in range(1, STEPS + 1):
    size = 512 if random.random() < 0.04 else 64
    loss = diffusion_loss(model, pulses(size))
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    with torch.no_grad():
        for a, p in zip(average.parameters(), model.parameters()):
            a.lerp_(p, 0.02)
    if step % 40 == 0:
        print(f"{step:4d} batch {size:3d} loss {loss.item():.4f}", flush=True)
    if step % 200 == 0:
        print(f"     held-out {held_out_loss(model):.4f}, averaged weights {held_out_loss(average):.4f}", flush=True)
