# expect: sick
# symptom: good progress in the first epochs, then the loss stands still at a mid level for the rest of the run
# axis: optimizer
# cause: ReduceLROnPlateau watches the validation loss with mode="max", so every improvement counts as a bad epoch and the learning rate is cut again and again until nothing moves
# says: ReduceLROnPlateau|mode ?= ?.?max|plateau (schedul|mode)|(learning.?rate|\blr\b).{0,80}(collaps|decay|cut|reduc|drop|shrink|too (low|small|early|fast)|vanish|tiny|near(ly)? (0|zero)|falls|fell)|schedul.{0,60}(max|wrong|invert|direction)
# onset_step: 120
# fix: mode="min" for a loss
# mended: the scheduler mode is min
import os
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


@dataclass
class Config:
    classes: int = 16
    size: int = 24
    patch: int = 4
    dim: int = 48
    depth: int = 2
    heads: int = 4
    batch: int = 32
    n_train: int = 960
    epochs: int = 20
    lr: float = 4e-4
    monitor_mode: str = "min" if MENDED else "max"
    seed: int = 8


def make_gratings(n, cfg, seed):
    """Oriented gratings under clutter; class = orientation."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, cfg.classes, (n,), generator=g)
    ax = torch.linspace(-1, 1, cfg.size)
    yy, xx = torch.meshgrid(ax, ax, indexing="ij")
    theta = y.float() * torch.pi / cfg.classes + 0.03 * torch.randn(n, generator=g)
    freq = 6 + 6 * torch.rand(n, generator=g)
    phase = 6.28 * torch.rand(n, generator=g)
    u = xx * theta.cos()[:, None, None] + yy * theta.sin()[:, None, None]
    img = torch.sin(freq[:, None, None] * u + phase[:, None, None])
    img = img + 0.5 * torch.randn(n, cfg.size, cfg.size, generator=g)
    return TensorDataset(img[:, None], y)


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = nn.MultiheadAttention(d, h, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        z = self.n1(x)
        x = x + self.attn(z, z, z, need_weights=False)[0]
        return x + self.mlp(self.n2(x))


class ViT(nn.Module):
    def __init__(self, c):
        super().__init__()
        n = (c.size // c.patch) ** 2
        self.patch = nn.Conv2d(1, c.dim, c.patch, c.patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, c.dim))
        self.pos = nn.Parameter(0.02 * torch.randn(1, n + 1, c.dim))
        self.blocks = nn.Sequential(*[Block(c.dim, c.heads) for _ in range(c.depth)])
        self.norm, self.head = nn.LayerNorm(c.dim), nn.Linear(c.dim, c.classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        return self.head(self.norm(self.blocks(x))[:, 0])


class Callback:
    def on_epoch_end(self, trainer, logs):
        pass


class LRMonitor(Callback):
    def __init__(self, optimizer, mode, factor=0.2, patience=2):
        self.sched = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode=mode, factor=factor, patience=patience)

    def on_epoch_end(self, trainer, logs):
        self.sched.step(logs["val_loss"])


class Printer(Callback):
    def on_epoch_end(self, trainer, logs):
        print("  ".join(f"{k} {v:.4f}" for k, v in logs.items()), flush=True)


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.model = ViT(cfg)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr, weight_decay=0.05)
        self.train = DataLoader(make_gratings(cfg.n_train, cfg, 1), cfg.batch, shuffle=True, drop_last=True)
        self.val = DataLoader(make_gratings(400, cfg, 2), 200)
        self.callbacks = [Printer(), LRMonitor(self.opt, cfg.monitor_mode)]

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        out = []
        for x, y in self.val:
            logits = self.model(x)
            out.append((F.cross_entropy(logits, y).item(), (logits.argmax(1) == y).float().mean().item()))
        return [sum(v) / len(v) for v in zip(*out)]

    def fit(self):
        step = 0
        for epoch in range(self.cfg.epochs):
            self.model.train()
            for x, y in self.train:
                loss = F.cross_entropy(self.model(x), y)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                if step % 10 == 0:
                    print(f"step {step} loss {loss.item():.4f}", flush=True)
                step += 1
            vl, va = self.validate()
            for cb in self.callbacks:
                cb.on_epoch_end(self, {"epoch": epoch, "val_loss": vl, "val_acc": va})


if __name__ == "__main__":
    cfg = Config()
    torch.manual_seed(cfg.seed)
    Trainer(cfg).fit()
