# expect: sick
# symptom: loss is fine for some steps, then NaN at a random step and never comes back
# axis: precision
# cause: the table of cumulative alphas is stored in float16, where the values at the first timesteps round to exactly 1, so the SNR weight abar/(1-abar) divides by zero (inf times a zero error is NaN) as soon as such a timestep is drawn
# says: (half|fp16|float16|16.?bit|low(er)? precision|round\w*|precision).{0,150}(alpha|abar|snr|schedule|table|cumprod|weight|timestep|divi\w+|1)|(alpha|abar|snr|schedule|weight).{0,150}(half|fp16|float16|round\w*|divi\w+ by (zero|0)|(one|1(\.0)?) exactly|exactly (one|1))
# onset_step: 41
# fix: keep the noise schedule in float32
# mended: yes
import math
import os
from dataclasses import dataclass

import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"


@dataclass
class Config:
    timesteps: int = 1000
    width: int = 96
    batch: int = 32
    steps: int = 600
    lr: float = 2e-3
    storage: torch.dtype = torch.float32 if MENDED else torch.float16


def two_moons(n):
    a = torch.rand(n) * math.pi
    top = torch.rand(n) < 0.5
    x = torch.where(top, torch.cos(a), 1 - torch.cos(a)) - 0.5
    y = torch.where(top, torch.sin(a), 0.5 - torch.sin(a)) - 0.25
    return torch.stack([x, y], -1) * 1.3 + 0.04 * torch.randn(n, 2)


class NoiseSchedule:
    def __init__(self, cfg):
        betas = torch.linspace(1e-4, 0.02, cfg.timesteps, dtype=torch.float64)
        # kept compact, the tables travel with every checkpoint
        self.abar = torch.cumprod(1 - betas, 0).to(cfg.storage)

    def at(self, t):
        return self.abar[t].float()[:, None]

    def diffuse(self, x0, t, noise):
        abar = self.at(t)
        return abar.sqrt() * x0 + (1 - abar).sqrt() * noise

    def weight(self, t):
        abar = self.at(t)
        return (abar / (1 - abar)).clamp(min=1.0)  # truncated SNR


class Denoiser(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.register_buffer("freq", torch.exp(torch.linspace(0, -math.log(10000.0), 16)))
        self.inp = nn.Linear(2, cfg.width)
        self.time = nn.Sequential(nn.Linear(32, cfg.width), nn.SiLU(), nn.Linear(cfg.width, cfg.width))
        self.mid = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(cfg.width), nn.Linear(cfg.width, cfg.width), nn.SiLU(), nn.Linear(cfg.width, cfg.width)
            )
            for _ in range(2)
        )
        self.out = nn.Linear(cfg.width, 2)

    def forward(self, x, t):
        ang = t.float()[:, None] * self.freq
        h = self.inp(x) + self.time(torch.cat([ang.sin(), ang.cos()], -1))
        for m in self.mid:
            h = h + m(h)
        return self.out(h)


def predict_x0(net, schedule, xt, t):
    # v-parametrisation
    abar = schedule.at(t)
    return abar.sqrt() * xt - (1 - abar).sqrt() * net(xt, t)


@torch.no_grad()
def quality(net, schedule, cfg):
    """Mean distance of denoised points to the data, at a low noise level."""
    x0 = two_moons(512)
    t = torch.full((512,), cfg.timesteps // 10)
    xt = schedule.diffuse(x0, t, torch.randn_like(x0))
    return (predict_x0(net, schedule, xt, t) - x0).norm(dim=-1).mean().item()


def main():
    torch.manual_seed(2)
    cfg = Config()
    schedule = NoiseSchedule(cfg)
    net = Denoiser(cfg)
    opt = torch.optim.Adam(net.parameters(), lr=cfg.lr, betas=(0.9, 0.99))
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, cfg.steps, 1e-5)
    for step in range(cfg.steps):
        x0 = two_moons(cfg.batch)
        t = torch.randint(cfg.timesteps, (cfg.batch,))
        xt = schedule.diffuse(x0, t, torch.randn_like(x0))
        err = (predict_x0(net, schedule, xt, t) - x0) ** 2
        loss = (schedule.weight(t) * err).mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}")
        if step % 200 == 199:
            print(f"step {step} denoise_error {quality(net, schedule, cfg):.4f}")


if __name__ == "__main__":
    main()
