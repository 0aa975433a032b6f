# expect: sick
# symptom: train loss is good, but the averaged weights that are used for sampling hardly improve: their denoising loss stays far above and the samples are noise
# axis: precision
# cause: the averaged (EMA) copy is kept in bfloat16; with decay 0.995 the increment is smaller than half a bf16 unit of the weight, so the update rounds away and the averaged weights stay near their initial values
# says: (\bema\b|averag|shadow|moving).{0,160}(bf16|bfloat16|half|precision|round|stale|stuck|frozen|initial|never|\blags?\b|not.{0,15}(mov|updat|chang))|(bf16|bfloat16|round|low.?precision).{0,120}(\bema\b|averag|shadow)
# onset_step: 0
# fix: keep the averaged weights in float32 (cast only for use)
# mended: the averaged copy stays float32
"""Denoising diffusion on two rings in the plane; sampling and evaluation use averaged weights."""

import copy
import math
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(37)

STEPS, BATCH, LEVELS, DECAY = 900, 256, 100, 0.995


def rings(n, gen):
    r = torch.where(torch.rand(n, generator=gen) < 0.5, 0.6, 1.6)
    a = torch.rand(n, generator=gen) * 2 * math.pi
    p = torch.stack([r * a.cos(), r * a.sin()], 1)
    return p + 0.04 * torch.randn(n, 2, generator=gen)


class Denoiser(nn.Module):
    def __init__(self, h=128):
        super().__init__()
        self.register_buffer("freq", 2.0 ** torch.arange(0, 6) * 0.5)
        self.inp = nn.Linear(2 + 24 + 12, h)
        self.mid = nn.ModuleList(nn.Sequential(nn.SiLU(), nn.Linear(h, h)) for _ in range(3))
        self.out = nn.Sequential(nn.SiLU(), nn.Linear(h, 2))

    def forward(self, x, t):
        u = t.to(x.dtype)[:, None] / LEVELS
        f = self.freq.to(x.dtype)
        tf = torch.cat([(u * f * 3).sin(), (u * f * 3).cos()], 1)
        xf = (x[:, :, None] * f).flatten(1)
        h = self.inp(torch.cat([x, xf.sin(), xf.cos(), tf], 1))
        for m in self.mid:
            h = h + m(h)
        return self.out(h)


BETA = torch.linspace(1e-3, 0.08, LEVELS)
ABAR = torch.cumprod(1 - BETA, 0)


def denoise_loss(model, x0, t, eps, dtype=torch.float32):
    a = ABAR[t][:, None]
    xt = a.sqrt() * x0 + (1 - a).sqrt() * eps
    return F.mse_loss(model(xt.to(dtype), t).float(), eps)


class Averaged:
    def __init__(self, model, decay):
        self.dtype = torch.float32 if MENDED else torch.bfloat16
        self.model = copy.deepcopy(model).to(self.dtype).requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for e, p in zip(self.model.parameters(), model.parameters()):
            e.lerp_(p.to(self.dtype), 1 - self.decay)


@torch.no_grad()
def sample(ema, n):
    x = torch.randn(n, 2)
    for i in reversed(range(LEVELS)):
        t = torch.full((n,), i)
        e = ema.model(x.to(ema.dtype), t).float()
        x = (x - BETA[i] / (1 - ABAR[i]).sqrt() * e) / (1 - BETA[i]).sqrt()
        if i:
            x = x + BETA[i].sqrt() * torch.randn_like(x)
    return x


def main():
    gen = torch.Generator().manual_seed(1)
    model = Denoiser()
    ema = Averaged(model, DECAY)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    ex0, et, ee = (
        rings(4000, gen),
        torch.randint(0, LEVELS, (4000,), generator=gen),
        torch.randn(4000, 2, generator=gen),
    )
    t0 = time.time()
    for step in range(STEPS):
        x0 = rings(BATCH, gen)
        t = torch.randint(0, LEVELS, (BATCH,), generator=gen)
        loss = denoise_loss(model, x0, t, torch.randn(BATCH, 2, generator=gen))
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update(model)
        if step % 50 == 0 or step == STEPS - 1:
            with torch.no_grad():
                ev = denoise_loss(ema.model, ex0, et, ee, ema.dtype).item()
            print(f"step {step:4d} loss {loss.item():.4f} eval loss (averaged) {ev:.4f}", flush=True)
    r = sample(ema, 1500).norm(dim=1)
    off = torch.minimum((r - 0.6).abs(), (r - 1.6).abs()).mean().item()
    print(f"mean distance of samples to the rings {off:.3f}   {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
