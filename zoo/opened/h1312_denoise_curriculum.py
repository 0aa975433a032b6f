# expect: healthy
# symptom: the training loss (summed over pixels, so in the hundreds) climbs in steps at 100, 200 and 300 and never comes back to its low values; the held-out error at full difficulty falls all the time
# axis: none
# mended: none
import os
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


@dataclass
class Config:
    size: int = 24
    batch: int = 16
    levels: tuple = (0.1, 0.3, 0.6, 1.0)
    steps_per_level: int = 100
    lr: float = 2e-3
    width: int = 24
    seed: int = 13


class Scenes:
    def __init__(self, cfg, seed):
        self.c, self.g = cfg, torch.Generator().manual_seed(seed)
        ax = torch.linspace(-1, 1, cfg.size)
        self.yy, self.xx = torch.meshgrid(ax, ax, indexing="ij")

    def clean(self, n):
        r = torch.rand(n, 8, generator=self.g)[..., None, None]
        ramp = (r[:, 0] - 0.5) * self.xx + (r[:, 1] - 0.5) * self.yy
        box = ((self.xx - (1.2 * r[:, 2] - 0.6)).abs() < 0.2 + 0.3 * r[:, 3]) & (
            (self.yy - (1.2 * r[:, 4] - 0.6)).abs() < 0.2 + 0.3 * r[:, 5]
        )
        disc = (self.xx - (r[:, 6] - 0.5)) ** 2 + (self.yy - (r[:, 7] - 0.5)) ** 2 < 0.12
        return (ramp + 1.0 * box - 0.8 * disc)[:, None]

    def batch(self, n, level):
        x = self.clean(n)
        noise = level * torch.randn(x.shape, generator=self.g)
        holes = (torch.rand(x.shape, generator=self.g) > 0.4 * level).float()
        return (x + noise) * holes, x


class Curriculum:
    def __init__(self, cfg):
        self.c, self.stage = cfg, -1

    def level(self, step):
        return self.c.levels[min(step // self.c.steps_per_level, len(self.c.levels) - 1)]

    def changed(self, step):
        return step % self.c.steps_per_level == 0


class DnCNN(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.inp = nn.Conv2d(1, w, 3, padding=1)
        self.mid = nn.ModuleList([nn.Conv2d(w, w, 3, padding=d, dilation=d) for d in (1, 2, 4, 2)])
        self.out = nn.Conv2d(w, 1, 3, padding=1)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x):
        h = F.gelu(self.inp(x))
        for m in self.mid:
            h = h + F.gelu(m(h))
        return x - self.out(h)


class Trainer:
    def __init__(self, cfg):
        self.c, self.data, self.cur = cfg, Scenes(cfg, 1), Curriculum(cfg)
        self.net = DnCNN(cfg.width)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=cfg.lr)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(
            self.opt, cfg.steps_per_level, eta_min=cfg.lr / 20
        )
        self.held = Scenes(cfg, 2).batch(128, cfg.levels[-1])

    @torch.no_grad()
    def held_out(self):
        return (self.net(self.held[0]) - self.held[1]).pow(2).mean().item()

    def fit(self):
        for step in range(len(self.c.levels) * self.c.steps_per_level):
            level = self.cur.level(step)
            if self.cur.changed(step):
                print(f"step {step} noise level {level} held-out mse {self.held_out():.4f}", flush=True)
            noisy, clean = self.data.batch(self.c.batch, level)
            loss = (self.net(noisy) - clean).pow(2).sum() / self.c.batch * 10
            self.opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.net.parameters(), 500.0)
            self.opt.step()
            self.sched.step()
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.2f}", flush=True)
        print(f"final held-out mse {self.held_out():.4f}")


if __name__ == "__main__":
    cfg = Config()
    torch.manual_seed(cfg.seed)
    Trainer(cfg).fit()
