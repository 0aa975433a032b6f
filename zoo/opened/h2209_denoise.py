# expect: healthy
# symptom: resembles a plateau: the noise-prediction loss is noisy and hardly falls after the first 100 steps, while samples keep improving
# axis: loss
"""Denoising diffusion for one-dimensional waveforms (random-phase heartbeats)."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

torch.set_num_threads(1)
torch.manual_seed(64)

T, LEN, CH = 100, 64, 48


def heartbeats(n: int) -> Tensor:
    x = torch.linspace(0, 1, LEN)[None]
    c = 0.35 + 0.3 * torch.rand(n, 1)
    h = 1.0 + 0.3 * torch.randn(n, 1)
    spike = h * torch.exp(-(((x - c) / 0.03) ** 2))
    dip = -0.4 * h * torch.exp(-(((x - c - 0.07) / 0.03) ** 2))
    wave = 0.35 * torch.exp(-(((x - c - 0.25) / 0.07) ** 2))
    return 2.0 * (spike + dip + wave) - 0.3


def cosine_alphas() -> Tensor:
    s = torch.linspace(0, 1, T + 1)
    f = torch.cos((s + 0.008) / 1.008 * math.pi / 2) ** 2
    betas = (1 - f[1:] / f[:-1]).clamp(max=0.99)
    return 1 - betas


ALPHA = cosine_alphas()
ABAR = ALPHA.cumprod(0)


class TimeEmbed(nn.Module):
    def __init__(self, d: int):
        super().__init__()
        self.freq = torch.exp(torch.linspace(0, 5, d // 2))
        self.mlp = nn.Sequential(nn.Linear(d, CH), nn.SiLU(), nn.Linear(CH, CH))

    def forward(self, t: Tensor) -> Tensor:
        a = t[:, None].float() / T * self.freq[None]
        return self.mlp(torch.cat([a.sin(), a.cos()], 1))


class Res(nn.Module):
    def __init__(self, dil: int):
        super().__init__()
        self.norm = nn.GroupNorm(8, CH)
        self.c1 = nn.Conv1d(CH, CH, 3, padding=dil, dilation=dil)
        self.c2 = nn.Conv1d(CH, CH, 3, padding=1)
        self.film = nn.Linear(CH, 2 * CH)
        nn.init.zeros_(self.c2.weight)
        nn.init.zeros_(self.c2.bias)

    def forward(self, h: Tensor, e: Tensor) -> Tensor:
        scale, shift = self.film(e)[..., None].chunk(2, 1)
        z = self.c1(torch.nn.functional.silu(self.norm(h) * (1 + scale) + shift))
        return h + self.c2(torch.nn.functional.silu(z))


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = TimeEmbed(32)
        self.inp = nn.Conv1d(2, CH, 3, padding=1)
        self.blocks = nn.ModuleList(Res(d) for d in (1, 4, 16, 4, 1))
        self.out = nn.Conv1d(CH, 1, 1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        pos = torch.linspace(-1, 1, LEN).expand(len(x), LEN)
        h, e = self.inp(torch.stack([x, pos], 1)), self.time(t)
        for b in self.blocks:
            h = b(h, e)
        return self.out(h).squeeze(1)


@torch.no_grad()
def sample(model: Denoiser, n: int) -> Tensor:
    x = torch.randn(n, LEN)
    for i in reversed(range(T)):
        eps = model(x, torch.full((n,), i))
        x0 = ((x - (1 - ABAR[i]).sqrt() * eps) / ABAR[i].sqrt()).clamp(-3, 5)
        if i == 0:
            return x0
        prev = ABAR[i - 1]
        mean = (prev.sqrt() * (1 - ALPHA[i]) * x0 + ALPHA[i].sqrt() * (1 - prev) * x) / (1 - ABAR[i])
        x = mean + ((1 - ALPHA[i]) * (1 - prev) / (1 - ABAR[i])).sqrt() * torch.randn_like(x)
    return x


def distance(a: Tensor, ref: Tensor) -> float:
    """Mean distance of each sample to its nearest reference waveform."""
    return torch.cdist(a, ref).min(1).values.mean().item()


model = Denoiser()
ema = copy.deepcopy(model).requires_grad_(False)
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.99))
reference = heartbeats(3000)
steps, batch = 600, 24

for step in range(1, steps + 1):
    x0 = heartbeats(batch)
    t = torch.randint(0, T, (batch,))
    noise = torch.randn_like(x0)
    xt = ABAR[t].sqrt()[:, None] * x0 + (1 - ABAR[t]).sqrt()[:, None] * noise
    loss = (model(xt, t) - noise).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    decay = min(0.98, step / (step + 10))
    with torch.no_grad():
        for p, q in zip(ema.parameters(), model.parameters()):
            p.lerp_(q, 1 - decay)
    if step % 25 == 0:
        print(f"step {step} loss {loss.item():.4f}")
    if step in (50, 150, 300, 600):
        print(
            f"step {step} sample distance {distance(sample(ema, 64), reference):.3f} "
            f"(real {distance(heartbeats(64), reference):.3f})"
        )
