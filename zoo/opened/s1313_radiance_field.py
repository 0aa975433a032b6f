# expect: sick
# symptom: the loss goes up and down in a regular wave of sixty batches, and the run ends at the top of a wave
# axis: optimizer
# cause: CosineAnnealingLR has T_max = number of epochs but is stepped once per batch, so the learning rate swings from peak to zero and back every 2*epochs batches instead of decaying once
# says: T_max|cosine|anneal|schedul.{0,100}(per.?(batch|step|iteration)|(every|each) (batch|step|iteration|update)|epoch|cycl|oscillat|period|wrap|swing|wave|restart|too (often|fast|many))|(learning.?rate|\blr\b).{0,60}(cycl|restart|period|swing|wave|goes (up|back)|ris(es|ing) again|up and down|zig|non.?monoton)
# onset_step: 170
# fix: T_max = epochs * batches per epoch, or step the scheduler once per epoch
# mended: T_max counts all batches of the run
import os
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


@dataclass
class Config:
    rays: int = 4096
    samples: int = 12
    batch: int = 256
    epochs: int = 30
    lr: float = 4e-2
    bands: int = 4
    width: int = 64
    near: float = 1.0
    far: float = 3.0
    seed: int = 3


class Scene:
    """Analytic volume: two soft coloured balls and a slab; gives ground truth pixels by fine quadrature."""

    def field(self, p):
        a = torch.exp(-(p - torch.tensor([0.3, 0.1, 0.0])).pow(2).sum(-1) / 0.05)
        b = torch.exp(-(p - torch.tensor([-0.35, -0.2, 0.2])).pow(2).sum(-1) / 0.08)
        s = torch.sigmoid(30 * (-0.45 - p[..., 1]))
        sigma = 14 * a + 10 * b + 6 * s
        check = 0.5 + 0.4 * torch.sign(torch.sin(9 * p[..., 0]) * torch.sin(9 * p[..., 2]))
        rgb = (
            a[..., None] * torch.tensor([1.0, 0.2, 0.2])
            + b[..., None] * torch.tensor([0.2, 0.4, 1.0])
            + (s * check)[..., None] * torch.ones(3)
        ) / (a + b + s + 1e-3)[..., None]
        return sigma, rgb.clamp(0, 1)


def render(field, origin, direction, cfg, samples):
    t = torch.linspace(cfg.near, cfg.far, samples)
    pts = origin[:, None] + direction[:, None] * t[:, None]
    sigma, rgb = field(pts)
    delta = (cfg.far - cfg.near) / samples
    alpha = 1 - torch.exp(-sigma * delta)
    trans = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-6], 1), 1)[:, :-1]
    return ((alpha * trans)[..., None] * rgb).sum(1)


class RayDataset:
    def __init__(self, n, cfg, seed):
        g = torch.Generator().manual_seed(seed)
        angle = 0.8 * (torch.rand(n, generator=g) - 0.5)
        self.o = torch.stack([2 * angle.sin(), torch.full_like(angle, 0.3), -2 * angle.cos()], 1)
        look = 1.4 * (torch.rand(n, 3, generator=g) - 0.5)
        self.d = F.normalize(look - self.o, dim=1)
        with torch.no_grad():
            self.rgb = torch.cat(
                [render(Scene().field, o, d, cfg, 64) for o, d in zip(self.o.split(512), self.d.split(512))]
            )

    def batches(self, size):
        for idx in torch.randperm(len(self.o)).split(size):
            yield self.o[idx], self.d[idx], self.rgb[idx]


class Field(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.register_buffer("freq", 2.0 ** torch.arange(c.bands) * 1.5)
        i = 3 + 6 * c.bands
        self.trunk = nn.Sequential(nn.Linear(i, c.width), nn.ReLU(), nn.Linear(c.width, c.width), nn.ReLU())
        self.sigma, self.rgb = nn.Linear(c.width, 1), nn.Linear(c.width, 3)

    def forward(self, p):
        e = (p[..., None, :] * self.freq[:, None]).flatten(-2)
        h = self.trunk(torch.cat([p, e.sin(), e.cos()], -1))
        return F.softplus(self.sigma(h)[..., 0]), self.rgb(h).sigmoid()


class Trainer:
    def __init__(self, cfg):
        self.c = cfg
        self.train, self.test = RayDataset(cfg.rays, cfg, 1), RayDataset(512, cfg, 2)
        self.field = Field(cfg)
        self.opt = torch.optim.Adam(self.field.parameters(), lr=cfg.lr)
        horizon = cfg.epochs * (cfg.rays // cfg.batch) if MENDED else cfg.epochs
        self.sched = CosineAnnealingLR(self.opt, T_max=horizon)

    @torch.no_grad()
    def psnr(self):
        mse = (render(self.field, self.test.o, self.test.d, self.c, self.c.samples) - self.test.rgb).pow(2).mean()
        return -10 * mse.log10().item()

    def fit(self):
        step = 0
        for epoch in range(self.c.epochs):
            for o, d, rgb in self.train.batches(self.c.batch):
                loss = (render(self.field, o, d, self.c, self.c.samples) - rgb).pow(2).mean()
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                self.sched.step()
                if step % 5 == 0:
                    print(f"step {step} loss {loss.item():.6f}", flush=True)
                step += 1
        print(f"final test psnr {self.psnr():.2f}")


if __name__ == "__main__":
    cfg = Config()
    torch.manual_seed(cfg.seed)
    Trainer(cfg).fit()
