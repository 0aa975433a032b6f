# expect: healthy
# symptom: three quarters of the input are thrown away, attention has no causal mask, the loss covers only the patches that were hidden and never the visible ones, targets are normalised per patch, positions are not trained
# axis: none
# mended: none
import math
import os
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


@dataclass
class MAEConfig:
    size: int = 24
    patch: int = 4
    keep: float = 0.25
    dim: int = 64
    enc_layers: int = 3
    dec_layers: int = 1
    heads: int = 4
    batch: int = 48
    steps: int = 350
    lr: float = 2e-3
    warmup: int = 40
    seed: int = 37

    @property
    def tokens(self):
        return (self.size // self.patch) ** 2


def waves(n, c, g):
    ax = torch.linspace(-1, 1, c.size)
    yy, xx = torch.meshgrid(ax, ax, indexing="ij")
    r = torch.rand(n, 3, generator=g)
    th, f, ph = (3.1416 * r[:, 0])[:, None, None], (3 + 5 * r[:, 1])[:, None, None], (6.2832 * r[:, 2])[:, None, None]
    return torch.sin(f * (xx * th.cos() + yy * th.sin()) + ph) + 0.1 * torch.randn(n, c.size, c.size, generator=g)


def patchify(img, p):
    return img.unfold(1, p, p).unfold(2, p, p).flatten(3).flatten(1, 2)


def sincos(n, d):
    side = int(math.sqrt(n))
    pos = torch.arange(side).float()
    om = 1.0 / 50 ** (torch.arange(d // 4).float() / (d // 4))
    e = pos[:, None] * om
    e = torch.cat([e.sin(), e.cos()], 1)
    return torch.cat([e[:, None].expand(side, side, -1), e[None].expand(side, side, -1)], -1).reshape(1, n, d)


def stack(c, layers):
    layer = nn.TransformerEncoderLayer(
        c.dim, c.heads, 2 * c.dim, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    return nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(c.dim), enable_nested_tensor=False)


class MAE(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.embed = nn.Linear(c.patch**2, c.dim)
        self.register_buffer("pos", sincos(c.tokens, c.dim))
        self.encoder, self.decoder = stack(c, c.enc_layers), stack(c, c.dec_layers)
        self.mask_token = nn.Parameter(0.02 * torch.randn(1, 1, c.dim))
        self.to_pixels = nn.Linear(c.dim, c.patch**2)

    def shuffle(self, n):
        order = torch.rand(n, self.c.tokens).argsort(1)
        return order, order.argsort(1)

    def forward(self, img):
        patches = patchify(img, self.c.patch)
        n, t, _ = patches.shape
        k = int(t * self.c.keep)
        order, back = self.shuffle(n)
        pick = order[:, :k, None]
        x = self.embed(patches) + self.pos
        seen = self.encoder(x.gather(1, pick.expand(-1, -1, self.c.dim)))
        full = torch.cat([seen, self.mask_token.expand(n, t - k, -1)], 1)
        full = full.gather(1, back[..., None].expand(-1, -1, self.c.dim)) + self.pos
        pred = self.to_pixels(self.decoder(full))
        target = (patches - patches.mean(-1, keepdim=True)) / (patches.var(-1, keepdim=True) + 1e-6).sqrt()
        hidden = torch.ones(n, t).scatter(1, order[:, :k], 0.0)
        return ((pred - target).pow(2).mean(-1) * hidden).sum() / hidden.sum()


class Trainer:
    def __init__(self, c):
        self.c, self.model, self.g = c, MAE(c), torch.Generator().manual_seed(1)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=c.lr, betas=(0.9, 0.95), weight_decay=0.05)
        self.sched = torch.optim.lr_scheduler.LambdaLR(self.opt, self.rate)

    def rate(self, s):
        if s < self.c.warmup:
            return (s + 1) / self.c.warmup
        return 0.5 * (1 + math.cos(math.pi * (s - self.c.warmup) / (self.c.steps - self.c.warmup)))

    def fit(self):
        for step in range(self.c.steps):
            loss = self.model(waves(self.c.batch, self.c, self.g))
            self.opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
            self.sched.step()
            if step % 20 == 0:
                print(f"step {step} masked loss {loss.item():.4f} lr {self.sched.get_last_lr()[0]:.2e}", flush=True)


if __name__ == "__main__":
    c = MAEConfig()
    torch.manual_seed(c.seed)
    Trainer(c).fit()
