# expect: sick
# symptom: the loss falls a little in the first steps, then stays flat; accuracy stays far too low
# axis: schedule
# cause: the StepLR schedule is meant per epoch but is stepped after every batch, so the lr decays to nothing
# says: sched.*(batch|iteration|(each|every|per).?step)|(lr|learning.?rate).*(decay|vanish|collaps|too low)
# onset_step: 3
# fix: step the scheduler once per epoch rather than once per batch
# mended: the script applies that change if the environment has MENDED=1
"""Small CNN on rendered glyph images, Trainer style."""

import os
from dataclasses import dataclass
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
FLAG = os.environ.get("MENDED") == "1"


@dataclass
class Config:
    epochs: int = 12
    batch_size: int = 64
    lr: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 5e-4
    lr_step: int = 3
    lr_gamma: float = 0.4
    n_train: int = 1600
    n_val: int = 400
    seed: int = 3


def render(n, gen, size=20):
    """Six glyph kinds at random positions and scales on a noisy background."""
    yy, xx = torch.meshgrid(torch.arange(size).float(), torch.arange(size).float(), indexing="ij")
    labels = torch.randint(0, 6, (n,), generator=gen)
    u = torch.rand(n, 4, generator=gen)
    cx, cy, r = 7 + 6 * u[:, 0], 7 + 6 * u[:, 1], 3.5 + 2.5 * u[:, 2]
    dx, dy = xx[None] - cx[:, None, None], yy[None] - cy[:, None, None]
    rad = (dx**2 + dy**2).sqrt()
    R = r[:, None, None]
    box = torch.maximum(dx.abs(), dy.abs())
    inside = box < R
    kinds = torch.stack(
        [
            rad < R,
            (rad - R).abs() < 1.0,
            (box - R).abs() < 1.0,
            inside & ((dx.abs() < 1) | (dy.abs() < 1)),
            inside & (((dx - dy).abs() < 1.4) | ((dx + dy).abs() < 1.4)),
            inside & (dy > 0) & (dx.abs() < dy),
        ]
    ).float()
    img = kinds[labels, torch.arange(n)]
    img = img * (0.5 + 0.5 * u[:, 3])[:, None, None] + 0.25 * torch.randn(n, size, size, generator=gen)
    return img[:, None], labels


class GlyphNet(nn.Module):
    def __init__(self, n_cls=6):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 32, 3, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
        )
        self.head = nn.Linear(32, n_cls)

    def forward(self, x):
        return self.head(self.features(x).mean(dim=(2, 3)))


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        gen = torch.Generator().manual_seed(cfg.seed)
        self.train_x, self.train_y = render(cfg.n_train, gen)
        self.val_x, self.val_y = render(cfg.n_val, gen)
        torch.manual_seed(cfg.seed)
        self.model = GlyphNet()
        self.opt = torch.optim.SGD(
            self.model.parameters(), lr=cfg.lr, momentum=cfg.momentum, weight_decay=cfg.weight_decay
        )
        self.sched = torch.optim.lr_scheduler.StepLR(self.opt, step_size=cfg.lr_step, gamma=cfg.lr_gamma)
        self.step = 0

    def batches(self):
        order = torch.randperm(len(self.train_x))
        for idx in order.split(self.cfg.batch_size):
            yield self.train_x[idx], self.train_y[idx]

    def train_step(self, x, y, last=False):
        self.opt.zero_grad(set_to_none=True)
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.opt.step()
        if last or not FLAG:
            self.sched.step()
        self.step += 1
        return loss.item()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        out = self.model(self.val_x)
        self.model.train()
        return F.cross_entropy(out, self.val_y).item(), (out.argmax(1) == self.val_y).float().mean().item()

    def fit(self):
        per_epoch = -(-len(self.train_x) // self.cfg.batch_size)
        for epoch in range(self.cfg.epochs):
            for k, (x, y) in enumerate(self.batches()):
                loss = self.train_step(x, y, last=k == per_epoch - 1)
                if self.step % 15 == 0:
                    print(f"epoch {epoch} step {self.step:4d} loss {loss:.4f}")
            vl, acc = self.validate()
            print(f"epoch {epoch} val loss {vl:.4f} val acc {acc:.3f}")


if __name__ == "__main__":
    Trainer(Config()).fit()
