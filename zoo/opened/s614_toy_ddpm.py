# expect: sick
# symptom: the denoising loss falls nicely, but the samples do not look like the data at all
# axis: data
# cause: the forward process corrupts the data with uniform [0,1) noise (rand_like) where the schedule and the sampler assume standard normal noise
# says: (uniform.{0,80}(noise|rand|gauss|normal)|noise.{0,100}(uniform|not (gauss|standard|normal|zero)|non.?(gauss|zero|normal)|positive|biased|wrong distribution|mean (of )?0?\.5|nonzero mean|rand_like|instead of (a )?(gauss|normal|standard))|rand_like|torch\.rand\b)
# onset_step: 1
# fix: draw the noise with torch.randn_like
# mended: with MENDED=1 the noise is torch.randn_like(x0)
import argparse
import logging
import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("ddpm")
torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"


def two_moons(n, gen):
    t = torch.rand(n, generator=gen) * math.pi
    upper = torch.rand(n, generator=gen) < 0.5
    x = torch.where(upper, t.cos(), 1 - t.cos())
    y = torch.where(upper, t.sin(), 0.5 - t.sin())
    pts = torch.stack([x - 0.5, y - 0.25], 1) * 1.4
    return pts + 0.05 * torch.randn(n, 2, generator=gen)


class Schedule:
    def __init__(self, steps=100, lo=1e-3, hi=0.08):
        self.steps = steps
        self.beta = torch.linspace(lo, hi, steps)
        self.alpha = 1 - self.beta
        self.abar = torch.cumprod(self.alpha, 0)

    def corrupt(self, x0, t):
        noise = torch.randn_like(x0) if MENDED else torch.rand_like(x0)
        ab = self.abar[t][:, None]
        return ab.sqrt() * x0 + (1 - ab).sqrt() * noise, noise


class Denoiser(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.register_buffer("freq", torch.exp(torch.linspace(0, -6, 16)))
        self.inp = nn.Linear(2, width)
        self.time = nn.Sequential(nn.Linear(32, width), nn.SiLU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
            for _ in range(2)
        )
        self.out = nn.Linear(width, 2)

    def forward(self, x, t):
        ang = t[:, None].float() * self.freq
        emb = self.time(torch.cat([ang.sin(), ang.cos()], 1))
        h = self.inp(x)
        for blk in self.blocks:
            h = h + blk(h + emb)
        return self.out(h)


@torch.no_grad()
def sample(model, sched, n):
    x = torch.randn(n, 2)
    for i in reversed(range(sched.steps)):
        t = torch.full((n,), i)
        eps = model(x, t)
        x = (x - sched.beta[i] / (1 - sched.abar[i]).sqrt() * eps) / sched.alpha[i].sqrt()
        if i > 0:
            x = x + sched.beta[i].sqrt() * torch.randn_like(x)
    return x


def sliced_wasserstein(a, b, n_proj=64):
    d = F.normalize(torch.randn(2, n_proj), dim=0)
    return ((a @ d).sort(0).values - (b @ d).sort(0).values).abs().mean().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=800)
    p.add_argument("--batch-size", type=int, default=256)
    p.add_argument("--lr", type=float, default=2e-3)
    args = p.parse_args()

    torch.manual_seed(11)
    gen = torch.Generator().manual_seed(12)
    model, sched = Denoiser(), Schedule()
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)
    lr_sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.steps, eta_min=1e-5)

    for step in range(1, args.steps + 1):
        x0 = two_moons(args.batch_size, gen)
        t = torch.randint(0, sched.steps, (args.batch_size,))
        xt, noise = sched.corrupt(x0, t)
        loss = F.mse_loss(model(xt, t), noise)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        lr_sched.step()
        if step % 50 == 0:
            log.info("step %d loss %.4f", step, loss.item())
        if step % 200 == 0:
            dist = sliced_wasserstein(sample(model, sched, 2000), two_moons(2000, gen))
            log.info("step %d sliced wasserstein to data %.3f", step, dist)


if __name__ == "__main__":
    main()
