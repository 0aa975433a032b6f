# expect: sick
# symptom: the denoiser's MSE sits at 1.0 from the start and never goes down; samples are pure noise
# axis: loss
# cause: the noise used to make x_t is drawn afresh inside q_sample because the sampled noise is not passed to it, so the regression target is a noise that is unrelated to the input
# says: noise.{0,100}(not passed|never passed|isn.?t passed|not the (same|one)|different|differs|unrelated|independent|mismatch|resampl|re-?sampl|re-?drawn|drawn (again|twice|afresh|anew)|sampled (again|twice|afresh|anew)|fresh|second (draw|sample)|twice|uncorrelated)|(different|independent|fresh|unrelated|wrong|another|two|second).{0,30}noise|target.{0,60}(unrelated|independent|random|uncorrelated|not (related|determined))
# onset_step: 1
# fix: pass the drawn noise to q_sample: q_sample(x0, t, noise)
# mended: with MENDED=1 the loss calls q_sample(x0, t, noise)
import math
import os
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)


def seed_all(s):
    random.seed(s)
    np.random.seed(s)
    torch.manual_seed(s)


def blobs(n, size=12):
    """Images with one bright Gaussian blob each, scaled to [-1, 1]."""
    g = torch.arange(size).float()
    cx, cy = torch.rand(2, n, 1, 1) * (size - 6) + 3
    r = torch.rand(n, 1, 1) * 1.0 + 1.2
    img = torch.exp(-((g[None, :, None] - cy) ** 2 + (g[None, None, :] - cx) ** 2) / (2 * r * r))
    return (img * 2 - 1)[:, None]


class TimeEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, t):
        half = self.dim // 2
        f = torch.exp(-math.log(10000.0) * torch.arange(half) / half)
        a = t[:, None].float() * f[None]
        return self.mlp(torch.cat([a.sin(), a.cos()], -1))


class Block(nn.Module):
    def __init__(self, cin, cout, tdim):
        super().__init__()
        self.c1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.c2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.n1, self.n2 = nn.GroupNorm(4, cout), nn.GroupNorm(4, cout)
        self.t = nn.Linear(tdim, cout)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, t):
        h = F.silu(self.n1(self.c1(x))) + self.t(t)[:, :, None, None]
        return F.silu(self.n2(self.c2(h))) + self.skip(x)


class TinyUNet(nn.Module):
    def __init__(self, c=24, tdim=32):
        super().__init__()
        self.time = TimeEmbedding(tdim)
        self.inp = nn.Conv2d(1, c, 3, padding=1)
        self.d1, self.mid = Block(c, c, tdim), Block(c, 2 * c, tdim)
        self.u1 = Block(3 * c, c, tdim)
        self.out = nn.Conv2d(c, 1, 3, padding=1)

    def forward(self, x, t):
        t = self.time(t)
        a = self.d1(self.inp(x), t)
        m = self.mid(F.avg_pool2d(a, 2), t)
        return self.out(self.u1(torch.cat([a, F.interpolate(m, scale_factor=2)], 1), t))


class Diffusion:
    def __init__(self, model, steps=100):
        self.model, self.steps = model, steps
        self.betas = torch.linspace(1e-3, 0.08, steps)
        self.alphas = 1 - self.betas
        self.abar = torch.cumprod(self.alphas, 0)

    def q_sample(self, x0, t, noise=None):
        if noise is None:
            noise = torch.randn_like(x0)
        ab = self.abar[t][:, None, None, None]
        return ab.sqrt() * x0 + (1 - ab).sqrt() * noise

    def loss(self, x0):
        t = torch.randint(0, self.steps, (x0.size(0),))
        noise = torch.randn_like(x0)
        if os.environ.get("MENDED") == "1":
            x_t = self.q_sample(x0, t, noise)
        else:
            x_t = self.q_sample(x0, t)
        return F.mse_loss(self.model(x_t, t), noise)

    @torch.no_grad()
    def sample(self, n, size=12):
        x = torch.randn(n, 1, size, size)
        for i in reversed(range(self.steps)):
            t = torch.full((n,), i)
            eps = self.model(x, t)
            x = (x - self.betas[i] / (1 - self.abar[i]).sqrt() * eps) / self.alphas[i].sqrt()
            if i > 0:
                x = x + self.betas[i].sqrt() * torch.randn_like(x)
        return x.clamp(-1, 1)


def main():
    seed_all(0)
    data = blobs(2048)
    model = TinyUNet()
    diff = Diffusion(model)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(1, 401):
        idx = torch.randint(0, len(data), (32,))
        loss = diff.loss(data[idx])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 40 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    s = diff.sample(32)
    nearest = torch.cdist(s.flatten(1), data.flatten(1)).min(1).values.mean().item()
    print(
        f"samples: mean {s.mean():.3f} std {s.std():.3f} (data {data.mean():.3f} {data.std():.3f}), distance to nearest image {nearest:.2f}"
    )


if __name__ == "__main__":
    main()
