# expect: sick
# symptom: loss comes down a little and then hardly moves, finer learning never happens although gradients look normal
# axis: precision
# cause: the weights themselves are bfloat16 and AdamW updates them directly without a float32 master copy; with lr 1e-4 most updates are smaller than half a bfloat16 step and round to nothing
# says: (bf16|bfloat16|low[- ]precision|16[- ]bit|half[- ]precision).{0,150}(weight|param|master|updat|optimi[sz]er|round|lost)|(updat\w*|step)s?.{0,100}(round|lost|vanish|swallow|too small|below|smaller than|absorbed).{0,80}|master (weight|cop|param)|stochastic rounding|stagnat\w*.{0,80}(bf16|bfloat16)
# onset_step: 20
# fix: keep weights in float32 and use autocast(bfloat16), or a float32 master copy / stochastic rounding
# mended: weights stay float32, forward runs under bfloat16 autocast
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(14)
rng = np.random.default_rng(14)

CLASSES, RES, PATCH = 8, 16, 4


def make_images(n):
    """class = orientation (4) x frequency (2) of a grating in noise, random phase and contrast"""
    y = rng.integers(0, CLASSES, n)
    yy, xx = np.mgrid[0:RES, 0:RES]
    ang = (y % 4) * np.pi / 4 + rng.normal(0, 0.08, n)
    freq = np.where(y < 4, 0.8, 1.35)
    ph = rng.uniform(0, 2 * np.pi, n)
    arg = freq[:, None, None] * (np.cos(ang)[:, None, None] * xx + np.sin(ang)[:, None, None] * yy) + ph[:, None, None]
    im = rng.uniform(0.5, 1.0, n)[:, None, None] * np.sin(arg) + rng.normal(0, 0.5, (n, RES, RES))
    return torch.tensor(im, dtype=torch.float32), torch.tensor(y)


class Attention(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h, self.qkv, self.out = h, nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))


class ViT(nn.Module):
    def __init__(self, d=64, depth=3, h=4):
        super().__init__()
        n = (RES // PATCH) ** 2
        self.embed = nn.Linear(PATCH * PATCH, d)
        self.cls = nn.Parameter(torch.zeros(1, 1, d))
        self.pos = nn.Parameter(torch.randn(1, n + 1, d) * 0.1)
        self.attn = nn.ModuleList(Attention(d, h) for _ in range(depth))
        self.mlp = nn.ModuleList(
            nn.Sequential(nn.Linear(d, 3 * d), nn.GELU(), nn.Linear(3 * d, d)) for _ in range(depth)
        )
        self.n1 = nn.ModuleList(nn.LayerNorm(d) for _ in range(depth))
        self.n2 = nn.ModuleList(nn.LayerNorm(d) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, CLASSES)

    def forward(self, im):
        p = im.unfold(1, PATCH, PATCH).unfold(2, PATCH, PATCH).reshape(len(im), -1, PATCH * PATCH)
        x = torch.cat([self.cls.expand(len(im), -1, -1), self.embed(p)], 1) + self.pos
        for a, m, n1, n2 in zip(self.attn, self.mlp, self.n1, self.n2):
            x = x + a(n1(x))
            x = x + m(n2(x))
        return self.head(self.norm(x[:, 0]))


def main():
    x, y = make_images(4000)
    xv, yv = make_images(800)
    model = ViT()
    dtype = torch.float32 if MENDED else torch.bfloat16
    model = model.to(dtype)
    opt = torch.optim.AdamW(model.parameters(), lr=1.5e-4, betas=(0.9, 0.99), weight_decay=0.02)
    steps, bs = 420, 32
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 30) * max(0.1, 1 - s / steps))
    t0 = time.time()
    for step in range(1, steps + 1):
        i = torch.randint(0, len(x), (bs,))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(x[i].to(dtype))
        loss = F.cross_entropy(logits.float(), y[i])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} t {time.time() - t0:.1f}s", flush=True)
        if step % 140 == 0:
            model.eval()
            with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
                acc = (model(xv.to(dtype)).argmax(-1) == yv).float().mean().item()
            model.train()
            print(f"  val accuracy {acc:.3f}")


main()
