# expect: sick
# symptom: denoising loss falls normally but validation loss and the samples stay close to those of an untrained network
# axis: harness
# cause: evaluation and sampling use an EMA copy whose decay 0.999 with one update every 10 steps is far too slow for a 700-step run and has no warm-up, so it is still mostly the random initial weights
# says: (?=[\s\S]*(\b(ema|EMA)\b|exponential moving|averaged|shadow))(?=[\s\S]*(decay|slow|lag|warm-?up|bias|initial|init\b|stale|random|untrained|few updates|update_every|too (high|long)))
# onset_step: 0
# fix: warm the EMA decay up, min(decay, (1+n)/(10+n)), or start the average from the trained weights
# mended: yes
import copy
import math
import os
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


@dataclass
class DiffusionConfig:
    timesteps: int = 60
    width: int = 96
    depth: int = 3
    batch: int = 256
    steps: int = 700
    lr: float = 2e-3
    log_every: int = 25
    eval_every: int = 175
    ema: dict = field(default_factory=lambda: {"decay": 0.999, "update_every": 10})


def two_arm_spiral(n, gen):
    arm = torch.randint(0, 2, (n,), generator=gen).float()
    r = torch.rand(n, generator=gen).sqrt()
    ang = 3.5 * r * math.pi / 2 + arm * math.pi
    xy = torch.stack([r * torch.cos(ang), r * torch.sin(ang)], 1) * 1.8
    return xy + 0.04 * torch.randn(n, 2, generator=gen)


class TimeEmbed(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("freq", torch.exp(torch.linspace(0, math.log(200.0), dim // 2)))
        self.proj = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, t):
        a = t[:, None] * self.freq
        return self.proj(torch.cat([a.sin(), a.cos()], -1))


class Denoiser(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        w = cfg.width
        self.time = TimeEmbed(w)
        self.inp = nn.Linear(2, w)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(w), nn.Linear(w, w), nn.SiLU(), nn.Linear(w, w)) for _ in range(cfg.depth)
        )
        self.out = nn.Sequential(nn.LayerNorm(w), nn.SiLU(), nn.Linear(w, 2))

    def forward(self, x, t):
        e = self.time(t)
        h = self.inp(x)
        for layer in self.layers:
            h = h + layer(h + e)
        return self.out(h)


class ModelEma:
    def __init__(self, model, decay, update_every):
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay, self.update_every = decay, update_every
        self.calls = self.n = 0

    @torch.no_grad()
    def update(self, model):
        self.calls += 1
        if self.calls % self.update_every:
            return
        self.n += 1
        d = min(self.decay, (1 + self.n) / (10 + self.n)) if MENDED else self.decay
        for s, p in zip(self.model.parameters(), model.parameters()):
            s.mul_(d).add_(p, alpha=1 - d)


class GaussianDiffusion:
    def __init__(self, cfg):
        s = torch.linspace(0, 1, cfg.timesteps + 1)
        bar = torch.cos((s + 0.008) / 1.008 * math.pi / 2) ** 2
        self.beta = (1 - bar[1:] / bar[:-1]).clamp(max=0.6)
        self.alpha = 1 - self.beta
        self.bar = torch.cumprod(self.alpha, 0)
        self.T = cfg.timesteps

    def loss(self, model, x0, gen=None):
        t = torch.randint(0, self.T, (len(x0),), generator=gen)
        eps = torch.randn(x0.shape, generator=gen)
        a = self.bar[t][:, None]
        return F.mse_loss(model(a.sqrt() * x0 + (1 - a).sqrt() * eps, t / self.T), eps)

    @torch.no_grad()
    def sample(self, model, n, gen):
        x = torch.randn(n, 2, generator=gen)
        for i in reversed(range(self.T)):
            t = torch.full((n,), i / self.T)
            eps = model(x, t)
            x = (x - self.beta[i] / (1 - self.bar[i]).sqrt() * eps) / self.alpha[i].sqrt()
            if i:
                x = x + self.beta[i].sqrt() * torch.randn(n, 2, generator=gen)
        return x


def sliced_w(a, b, gen, k=64):
    d = F.normalize(torch.randn(2, k, generator=gen), dim=0)
    return ((a @ d).sort(0).values - (b @ d).sort(0).values).abs().mean().item()


class DiffusionTrainer:
    def __init__(self, cfg):
        torch.manual_seed(0)
        self.cfg, self.diff = cfg, GaussianDiffusion(cfg)
        self.gen = torch.Generator().manual_seed(1)
        self.model = Denoiser(cfg)
        self.ema = ModelEma(self.model, **cfg.ema)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr, weight_decay=0.0)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, cfg.steps)
        self.val = two_arm_spiral(1024, torch.Generator().manual_seed(9))

    def evaluate(self, step):
        g = torch.Generator().manual_seed(2)
        with torch.no_grad():
            vl = self.diff.loss(self.ema.model, self.val, g).item()
        sw = sliced_w(self.diff.sample(self.ema.model, 1024, g), self.val, g)
        print(f"[eval] step {step} val_loss {vl:.4f} sliced_w {sw:.4f}")

    def fit(self):
        for step in range(1, self.cfg.steps + 1):
            loss = self.diff.loss(self.model, two_arm_spiral(self.cfg.batch, self.gen), self.gen)
            self.opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
            self.sched.step()
            self.ema.update(self.model)
            if step % self.cfg.log_every == 0:
                print(f"step {step} loss {loss.item():.4f}")
            if step % self.cfg.eval_every == 0:
                self.evaluate(step)


if __name__ == "__main__":
    DiffusionTrainer(DiffusionConfig()).fit()
