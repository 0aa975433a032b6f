# expect: healthy
# symptom: most parameters get no gradient for the first 150 steps and the loss stands at a plateau; at 150 and 300 the learning rate restarts, the loss bumps and then drops
# axis: none
# mended: none
import os
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


@dataclass
class Stage:
    unfreeze: tuple
    steps: int
    lr: float


@dataclass
class Config:
    size: int = 20
    batch: int = 48
    source_steps: int = 120
    stages: list = field(
        default_factory=lambda: [Stage(("head",), 150, 3e-3), Stage(("top",), 150, 2e-3), Stage(("bottom",), 200, 1e-3)]
    )
    discount: float = 0.4
    seed: int = 17


class Blobs:
    """Images with coloured blobs: the source task is the dominant colour, the target task is the arrangement."""

    def __init__(self, cfg, task, seed):
        self.c, self.task = cfg, task
        self.g = torch.Generator().manual_seed(seed)
        ax = torch.linspace(-1, 1, cfg.size)
        self.yy, self.xx = torch.meshgrid(ax, ax, indexing="ij")

    def batch(self, n):
        y = torch.randint(0, 6, (n,), generator=self.g)
        colour = 0.3 + 0.7 * torch.rand(n, 3, generator=self.g)
        th = 6.2832 * torch.rand(n, generator=self.g)
        if self.task == "colour":
            colour = F.one_hot(y % 3, 3).float() * (0.6 + 0.3 * (y // 3).float())[:, None] + 0.2
        else:
            th = y.float() * torch.pi / 6 + 0.1 * torch.randn(n, generator=self.g)
        img = torch.zeros(n, self.c.size, self.c.size)
        for sign in (-1, 1):
            r = 0.45 + 0.1 * torch.rand(n, generator=self.g)
            cx, cy = sign * r * th.cos(), sign * r * th.sin()
            img += torch.exp(-((self.xx - cx[:, None, None]) ** 2 + (self.yy - cy[:, None, None]) ** 2) / 0.06)
        x = img[:, None] * colour[..., None, None]
        return x + 0.25 * torch.randn(x.shape, generator=self.g), y


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.bottom = nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1), nn.GroupNorm(4, 24), nn.ReLU())
        self.top = nn.Sequential(
            nn.Conv2d(24, 48, 3, 2, 1),
            nn.GroupNorm(4, 48),
            nn.ReLU(),
            nn.Conv2d(48, 64, 3, 2, 1),
            nn.GroupNorm(4, 64),
            nn.ReLU(),
        )
        self.head = nn.Linear(64 * 9, 6)

    def forward(self, x):
        return self.head(self.top(self.bottom(x)).flatten(1))


def pretrain(cfg):
    net, data = Net(), Blobs(cfg, "colour", 1)
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
    for step in range(cfg.source_steps):
        x, y = data.batch(cfg.batch)
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 30 == 0:
            print(f"source step {step} loss {loss.item():.4f}", flush=True)
    net.head = nn.Linear(64 * 9, 6)
    return net


class GradualUnfreezing:
    def __init__(self, net, cfg):
        self.net, self.c = net, cfg
        self.data, self.test = Blobs(cfg, "arrangement", 3), Blobs(cfg, "arrangement", 4).batch(400)
        self.net.requires_grad_(False)
        self.open, self.step = [], 0

    def start(self, stage):
        for name in stage.unfreeze:
            getattr(self.net, name).requires_grad_(True)
            self.open.insert(0, name)
        groups = [
            {"params": list(getattr(self.net, n).parameters()), "lr": stage.lr * self.c.discount**i}
            for i, n in enumerate(reversed(self.open))
        ]
        self.opt = torch.optim.AdamW(groups, weight_decay=0.01)
        self.sched = torch.optim.lr_scheduler.OneCycleLR(
            self.opt, [g["lr"] for g in groups], total_steps=stage.steps, pct_start=0.2
        )
        n = sum(p.numel() for p in self.net.parameters() if p.requires_grad)
        print(f"stage with {self.open}: {n} of {sum(p.numel() for p in self.net.parameters())} parameters train")

    def fit(self):
        for stage in self.c.stages:
            self.start(stage)
            for _ in range(stage.steps):
                x, y = self.data.batch(self.c.batch)
                loss = F.cross_entropy(self.net(x), y)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                self.sched.step()
                if self.step % 10 == 0:
                    print(f"step {self.step} loss {loss.item():.4f}", flush=True)
                self.step += 1
            with torch.no_grad():
                acc = (self.net(self.test[0]).argmax(1) == self.test[1]).float().mean().item()
            print(f"step {self.step} test accuracy {acc:.3f}", flush=True)


if __name__ == "__main__":
    cfg = Config()
    torch.manual_seed(cfg.seed)
    GradualUnfreezing(pretrain(cfg), cfg).fit()
