# expect: sick
# symptom: the training loss falls as it should, but the EMA weights, used for validation and sampling, stay as bad as at the start
# axis: precision
# cause: the EMA copy is kept in bfloat16; with decay 0.997 the small update per step is less than half a bfloat16 ulp, rounds away, and the averaged weights stop following the model
# says: (ema|moving.average|averag\w+ (weight|copy|model)|shadow).{0,200}(bf16|bfloat|half|low.?precision|round|16.?bit|precision)|(bf16|bfloat16|round\w*|16.?bit|low.?precision).{0,200}(ema\b|moving.average|averag|shadow)
# onset_step: 0
# fix: keep the EMA weights in float32
# mended: the EMA copy is float32 instead of bfloat16
import copy
import math
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(12)

SIZE, T, BATCH, STEPS = 12, 200, 24, 800
EMA_DTYPE = torch.float32 if MENDED else torch.bfloat16


def blobs(n, seed):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:SIZE, :SIZE].astype(np.float32)
    img = np.zeros((n, SIZE, SIZE), np.float32)
    for i in range(n):
        for _ in range(2):
            cx, cy, s = rng.uniform(2, 9), rng.uniform(2, 9), rng.uniform(1, 2)
            img[i] += np.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / (2 * s * s))
    return torch.from_numpy(img.clip(0, 1)[:, None] * 2 - 1)


def cosine_alpha_bar():
    t = torch.linspace(0, 1, T + 1, dtype=torch.float64)
    f = torch.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2
    return (f / f[0])[1:].clamp(1e-4, 1).float()


class ResBlock(nn.Module):
    def __init__(self, c, emb):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, c), nn.GroupNorm(4, c)
        self.conv1, self.conv2 = nn.Conv2d(c, c, 3, padding=1), nn.Conv2d(c, c, 3, padding=1)
        self.emb = nn.Linear(emb, c)

    def forward(self, x, e):
        h = self.conv1(F.silu(self.norm1(x))) + self.emb(e)[:, :, None, None]
        return x + self.conv2(F.silu(self.norm2(h)))


class Denoiser(nn.Module):
    def __init__(self, c=16, emb=32):
        super().__init__()
        self.freq = emb // 2
        self.time = nn.Sequential(nn.Linear(emb, emb), nn.SiLU(), nn.Linear(emb, emb), nn.SiLU())
        self.inp = nn.Conv2d(1, c, 3, padding=1)
        self.b1, self.b2 = ResBlock(c, emb), ResBlock(c, emb)
        self.out = nn.Conv2d(c, 1, 3, padding=1)

    def forward(self, x, t):
        f = torch.exp(torch.arange(self.freq) * (-math.log(1000.0) / self.freq))
        a = t[:, None].float() * f
        e = self.time(torch.cat([a.sin(), a.cos()], -1).to(self.inp.weight.dtype))
        h = self.b1(self.inp(x), e)
        h = h + F.interpolate(self.b2(F.avg_pool2d(h, 2), e), scale_factor=2)
        return self.out(h)


class EMA:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = copy.deepcopy(model).to(EMA_DTYPE).requires_grad_(False).eval()

    @torch.no_grad()
    def update(self, model):
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.lerp_(p.to(s.dtype), 1 - self.decay)


def noised(x, t, noise, abar):
    a = abar[t][:, None, None, None]
    return a.sqrt() * x + (1 - a).sqrt() * noise


@torch.no_grad()
def validate(net, x, abar):
    g = torch.Generator().manual_seed(0)
    t = torch.randint(0, T, (len(x),), generator=g)
    noise = torch.randn(x.shape, generator=g)
    dtype = next(net.parameters()).dtype
    pred = net(noised(x, t, noise, abar).to(dtype), t).float()
    return F.mse_loss(pred, noise).item()


def main():
    train, valid = blobs(3000, 1), blobs(256, 2)
    abar = cosine_alpha_bar()
    model = Denoiser()
    ema = EMA(model, decay=0.997)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    t0 = time.time()
    for step in range(STEPS):
        x = train[torch.randint(0, len(train), (BATCH,))]
        t = torch.randint(0, T, (BATCH,))
        noise = torch.randn_like(x)
        loss = F.mse_loss(model(noised(x, t, noise, abar), t), noise)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        ema.update(model)
        if step % 50 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} ({time.time() - t0:.1f}s)")
        if (step + 1) % 200 == 0:
            print(
                f"== step {step + 1} valid ema {validate(ema.shadow, valid, abar):.4f} "
                f"raw {validate(model, valid, abar):.4f}"
            )


if __name__ == "__main__":
    main()
