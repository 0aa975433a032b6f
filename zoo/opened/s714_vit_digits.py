# expect: sick
# symptom: the loss jumps up at the start and then stays near ln(10) = 2.30, accuracy stays near 10 %
# axis: optimizer
# cause: a learning rate of 0.1, taken over from an SGD recipe and applied from the first step without warm-up, is far too high for AdamW on a transformer and throws the weights into a region where the output no longer depends on the image
# says: (learning.?rate|\blr\b|step.?size)[^.]{0,80}(too (high|large|big|much|aggressive)|excessive|far above|much (too|higher|larger))|(too|excessively|very)[ -](high|large|big)[^.]{0,30}(learning.?rate|\blr\b|step.?size|updates?)|(lower|reduce|decrease|cut)[^.]{0,25}(learning.?rate|\blr\b)|(no|without|lack\w*|missing)[^.]{0,15}warm.?up|(lr|learning_rate)[ _-]too[ _-](high|large|big)
# onset_step: 1
# fix: lower the learning rate to 1e-3
# mended: with MENDED=1 the config's lr is 1e-3
import math
import os
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    image: int = 20
    patch: int = 4
    dim: int = 48
    depth: int = 3
    heads: int = 4
    classes: int = 10
    batch: int = 48
    steps: int = 300
    lr: float = 1e-3 if os.environ.get("MENDED") == "1" else 1e-1
    weight_decay: float = 5e-2
    seed: int = 0


SEGMENTS = [
    0b1110111,
    0b0010010,
    0b1011101,
    0b1011011,
    0b0111010,
    0b1101011,
    0b1101111,
    0b1010010,
    0b1111111,
    0b1111011,
]


def glyphs():
    """Seven-segment digits on an 11 x 7 grid."""
    g = torch.zeros(10, 11, 7)
    for d, bits in enumerate(SEGMENTS):
        on = [(bits >> (6 - k)) & 1 for k in range(7)]
        if on[0]:
            g[d, 0:2, :] = 1
        if on[1]:
            g[d, 0:6, 0:2] = 1
        if on[2]:
            g[d, 0:6, 5:7] = 1
        if on[3]:
            g[d, 5:6, :] = 1
        if on[4]:
            g[d, 5:11, 0:2] = 1
        if on[5]:
            g[d, 5:11, 5:7] = 1
        if on[6]:
            g[d, 9:11, :] = 1
    return g


def make_split(n, cfg, gen):
    g = glyphs()
    y = torch.randint(0, cfg.classes, (n,), generator=gen)
    x = 0.2 * torch.randn(n, 1, cfg.image, cfg.image, generator=gen)
    dy = torch.randint(4, 6, (n,), generator=gen)
    dx = torch.randint(6, 8, (n,), generator=gen)
    for i in range(n):
        x[i, 0, dy[i] : dy[i] + 11, dx[i] : dx[i] + 7] += g[y[i]]
    return (x - x.mean()) / x.std(), y


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        o = F.scaled_dot_product_attention(q, k, v)
        return self.proj(o.transpose(1, 2).reshape(b, n, d))


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class ViT(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        n = (cfg.image // cfg.patch) ** 2
        self.embed = nn.Conv2d(1, cfg.dim, cfg.patch, cfg.patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, cfg.dim))
        self.pos = nn.Parameter(0.02 * torch.randn(1, n + 1, cfg.dim))
        self.layers = nn.Sequential(*[Layer(cfg.dim, cfg.heads) for _ in range(cfg.depth)])
        self.norm = nn.LayerNorm(cfg.dim)
        self.head = nn.Linear(cfg.dim, cfg.classes)

    def forward(self, x):
        t = self.embed(x).flatten(2).transpose(1, 2)
        t = torch.cat([self.cls.expand(len(t), -1, -1), t], 1) + self.pos
        return self.head(self.norm(self.layers(t))[:, 0])


def main():
    cfg = Config()
    torch.set_num_threads(1)
    torch.manual_seed(cfg.seed)
    gen = torch.Generator().manual_seed(cfg.seed + 1)
    x, y = make_split(4000, cfg, gen)
    xt, yt = make_split(500, cfg, gen)
    model = ViT(cfg)
    print(
        f"{sum(p.numel() for p in model.parameters()) / 1e3:.0f}k parameters, chance loss {math.log(cfg.classes):.3f}"
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
    for step in range(cfg.steps):
        idx = torch.randint(0, len(x), (cfg.batch,), generator=gen)
        logits = model(x[idx])
        loss = F.cross_entropy(logits, y[idx])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0 or step == cfg.steps - 1:
            with torch.no_grad():
                acc = (model(xt).argmax(1) == yt).float().mean().item()
            print(f"step {step:4d} loss {loss.item():.4f} test acc {acc:.3f}")


if __name__ == "__main__":
    main()
