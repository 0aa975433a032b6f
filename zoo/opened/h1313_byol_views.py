# expect: healthy
# symptom: half of the parameters never get a gradient and are in no optimizer; the target branch runs without a graph and in train mode; there are no negatives
# axis: none
# mended: none
import copy
import math
import os
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


@dataclass
class Config:
    size: int = 20
    batch: int = 64
    steps: int = 400
    lr: float = 1e-3
    tau: float = 0.98
    dim: int = 48
    classes: int = 8
    seed: int = 23


class Patterns:
    def __init__(self, cfg, seed):
        self.c = cfg
        base = torch.Generator().manual_seed(321)
        p = torch.rand(cfg.classes, 3, 4, 4, generator=base)
        self.proto = F.interpolate(p, size=(cfg.size, cfg.size), mode="bilinear")
        self.g = torch.Generator().manual_seed(seed)

    def images(self, n):
        y = torch.randint(0, self.c.classes, (n,), generator=self.g)
        own = F.interpolate(torch.rand(n, 3, 3, 3, generator=self.g), size=(self.c.size, self.c.size), mode="bilinear")
        return self.proto[y] + 0.6 * own, y


class TwoViews:
    """Random crop by roll, brightness, colour jitter, noise."""

    def one(self, x):
        dy, dx = torch.randint(-3, 4, (2,)).tolist()
        x = torch.roll(x, (dy, dx), (2, 3))
        x = x * (0.8 + 0.4 * torch.rand(len(x), 1, 1, 1)) + 0.15 * torch.randn(len(x), 3, 1, 1)
        return x + 0.1 * torch.randn_like(x)

    def __call__(self, x):
        return self.one(x), self.one(x)


def head(i, h, o):
    return nn.Sequential(nn.Linear(i, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Linear(h, o))


class Encoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        layers, a = [], 3
        for b in (16, 32, c.dim):
            layers += [nn.Conv2d(a, b, 3, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
            a = b
        self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.proj = head(c.dim, 96, 32)

    def forward(self, x):
        return self.proj(self.body(x))


class BYOL(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.online = Encoder(c)
        self.predictor = head(32, 96, 32)
        self.target = copy.deepcopy(self.online)
        for p in self.target.parameters():
            p.requires_grad = False

    def forward(self, a, b):
        with torch.no_grad():
            ta, tb = self.target(a), self.target(b)
        pa, pb = self.predictor(self.online(a)), self.predictor(self.online(b))
        return 2 - F.cosine_similarity(pa, tb).mean() - F.cosine_similarity(pb, ta).mean()

    @torch.no_grad()
    def update_target(self, tau):
        for t, o in zip(self.target.parameters(), self.online.parameters()):
            t.mul_(tau).add_(o, alpha=1 - tau)


@torch.no_grad()
def knn_accuracy(encoder, cfg):
    encoder.eval()
    (xa, ya), (xb, yb) = Patterns(cfg, 5).images(300), Patterns(cfg, 6).images(300)
    fa, fb = F.normalize(encoder.body(xa)), F.normalize(encoder.body(xb))
    encoder.train()
    near = (fb @ fa.T).topk(5, 1).indices
    acc = (ya[near].mode(1).values == yb).float().mean().item()
    return acc, fb.std(0).mean().item()


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    model, data, views = BYOL(cfg), Patterns(cfg, 1), TwoViews()
    trainable = list(model.online.parameters()) + list(model.predictor.parameters())
    opt = torch.optim.AdamW(trainable, lr=cfg.lr, weight_decay=1e-4)
    for step in range(cfg.steps):
        x, _ = data.images(cfg.batch)
        loss = model(*views(x))
        opt.zero_grad()
        loss.backward()
        opt.step()
        model.update_target(1 - (1 - cfg.tau) * (math.cos(math.pi * step / cfg.steps) + 1) / 2)
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % 100 == 99:
            acc, spread = knn_accuracy(model.online, cfg)
            print(f"step {step} knn {acc:.3f} feature std {spread:.4f}", flush=True)


if __name__ == "__main__":
    main()
