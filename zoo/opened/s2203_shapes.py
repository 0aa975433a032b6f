# expect: sick
# symptom: saw-tooth: after every evaluation the training loss leaps back up to an earlier level and has to be learnt again; final samples are poor
# axis: harness
# cause: the EMA swap for evaluation keeps a backup that aliases the live parameter storage (no clone), so restore() does nothing and training continues from the lagging EMA weights
# says: (backup|back-up|stash|saved?|stored?|restor|swap|alias|clone|copy|copies|same (memory|storage|tensor)).{0,200}(ema|EMA|averag|shadow)|(ema|EMA|averag|shadow).{0,200}(backup|back-up|stash|restor|swap|alias|clon|not copied|overwrit|written (in|back)|never (undone|reverted)|left in|remain)
# onset_step: 151
# fix: clone the parameters in the backup before the EMA values are copied in
# mended: yes
"""Small pixel-space diffusion model for 12x12 glyph images (v-prediction, cosine schedule)."""

import argparse
import math
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def glyphs(n, seed, side=12):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:side, :side].astype(np.float32)
    imgs = np.full((n, side, side), -1.0, np.float32)
    for i in range(n):
        kind = rng.integers(3)
        cx, cy = rng.uniform(4, 8, 2)
        r = rng.uniform(2.2, 4.0)
        if kind == 0:
            d = np.abs(np.hypot(xx - cx, yy - cy) - r)
        elif kind == 1:
            d = np.abs(np.maximum(np.abs(xx - cx), np.abs(yy - cy)) - r)
        else:
            d = np.minimum(np.abs(xx - cx), np.abs(yy - cy))
        imgs[i] = 2 * np.exp(-((d / 0.9) ** 2)) - 1
    return torch.from_numpy(imgs)[:, None]


class TimeMLP(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("freq", torch.exp(torch.linspace(0, math.log(200), 16)))
        self.net = nn.Sequential(nn.Linear(32, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, t):
        a = t[:, None] * self.freq
        return self.net(torch.cat([a.sin(), a.cos()], 1))


class ResBlock(nn.Module):
    def __init__(self, c, dim):
        super().__init__()
        self.n1, self.n2 = nn.GroupNorm(4, c), nn.GroupNorm(4, c)
        self.c1, self.c2 = nn.Conv2d(c, c, 3, padding=1), nn.Conv2d(c, c, 3, padding=1)
        self.emb = nn.Linear(dim, c)

    def forward(self, x, e):
        h = self.c1(F.silu(self.n1(x))) + self.emb(e)[:, :, None, None]
        return x + self.c2(F.silu(self.n2(h)))


class Denoiser(nn.Module):
    def __init__(self, c=32, dim=64):
        super().__init__()
        self.time = TimeMLP(dim)
        self.inp = nn.Conv2d(1, c, 3, padding=1)
        self.down = nn.Conv2d(c, c, 3, stride=2, padding=1)
        self.b1, self.b2, self.b3 = (ResBlock(c, dim) for _ in range(3))
        self.out = nn.Conv2d(2 * c, 1, 3, padding=1)

    def forward(self, x, t):
        e = self.time(t)
        hi = self.b1(self.inp(x), e)
        lo = self.b3(self.b2(self.down(hi), e), e)
        return self.out(torch.cat([hi, F.interpolate(lo, scale_factor=2)], 1))


class EMA:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = {k: p.detach().clone() for k, p in model.named_parameters()}
        self.backup = {}

    @torch.no_grad()
    def update(self, model):
        for k, p in model.named_parameters():
            self.shadow[k].lerp_(p, 1 - self.decay)

    @torch.no_grad()
    def apply(self, model):
        for k, p in model.named_parameters():
            self.backup[k] = p.detach().clone() if os.environ.get("MENDED") == "1" else p.detach()
            p.copy_(self.shadow[k])

    @torch.no_grad()
    def restore(self, model):
        for k, p in model.named_parameters():
            p.copy_(self.backup[k])
        self.backup.clear()


def schedule(t):
    return torch.cos(t * math.pi / 2), torch.sin(t * math.pi / 2)


def v_loss(model, x, gen):
    t = torch.rand(len(x), generator=gen)
    noise = torch.randn(x.shape, generator=gen)
    a, s = (z[:, None, None, None] for z in schedule(t))
    return F.mse_loss(model(a * x + s * noise, t), a * noise - s * x)


@torch.no_grad()
def evaluate(model, x, seed=99):
    model.eval()
    out = v_loss(model, x, torch.Generator().manual_seed(seed)).item()
    model.train()
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=600)
    ap.add_argument("--batch", type=int, default=48)
    ap.add_argument("--eval-every", type=int, default=150)
    ap.add_argument("--ema", type=float, default=0.997)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)

    data, held = glyphs(3000, 0), glyphs(300, 1)
    model = Denoiser()
    ema = EMA(model, args.ema)
    opt = torch.optim.AdamW(model.parameters(), lr=8e-4, weight_decay=1e-3)
    tic, acc = time.time(), []
    for step in range(1, args.steps + 1):
        x = data[torch.randint(len(data), (args.batch,), generator=gen)]
        loss = v_loss(model, x, gen)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        ema.update(model)
        acc.append(loss.item())
        if step % 15 == 0:
            print(f"[{step:04d}] v-loss {np.mean(acc[-15:]):.4f}")
        if step % args.eval_every == 0:
            ema.apply(model)
            print(f"[{step:04d}] held-out (ema weights) {evaluate(model, held):.4f}")
            ema.restore(model)
    print(f"raw weights, held-out {evaluate(model, held):.4f}; took {time.time() - tic:.1f}s")


if __name__ == "__main__":
    main()
