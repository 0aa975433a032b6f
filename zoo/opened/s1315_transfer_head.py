# expect: sick
# symptom: fine-tuning runs and the loss falls, but slowly, and ends far above what the same network reached on the source task
# axis: optimizer
# cause: the optimizer is created before the classification head is replaced; the new head is not in the optimizer and stays at its random initial values, only the backbone learns
# says: (head|classifier|last layer|new (layer|param)|some param|param\w* ).{0,100}(not|never|isn'?t|missing|absent|outside|without|miss|lack|no update|unchanged|frozen|does ?n.t)|optimi[sz]er.{0,100}(does ?n.t|not (hold|contain|have|include|see|know)|miss|lack|stale|old (head|param)|before|without|orphan)
# onset_step: 0
# fix: replace the head first, then build the optimizer (or add_param_group)
# mended: the optimizer is built after the head is replaced
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
    size: int = 20
    source_classes: int = 10
    target_classes: int = 32
    pretrain_steps: int = 150
    finetune_steps: int = 260
    batch: int = 48
    pretrain_lr: float = 2e-3
    finetune_lr: float = 1e-4
    seed: int = 21


def textures(n, classes, size, seed, family):
    """Texture patches; each class is a mixture of two spatial frequencies."""
    fam = torch.Generator().manual_seed(1000 + family)
    waves = torch.randn(classes, 2, 2, generator=fam) * 5
    colour = torch.rand(classes, 3, 1, 1, generator=fam)
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (n,), generator=g)
    ax = torch.linspace(-1, 1, size)
    yy, xx = torch.meshgrid(ax, ax, indexing="ij")
    img = torch.zeros(n, size, size)
    for k in range(2):
        w = waves[y, k]
        img += torch.sin(w[:, 0, None, None] * xx + w[:, 1, None, None] * yy + 6.28 * torch.rand(n, 1, 1, generator=g))
    x = img[:, None] * (0.5 + colour[y]) + 1.3 * torch.randn(n, 3, size, size, generator=g)
    return TensorDataset(x, y)


class SmallResNet(nn.Module):
    class Block(nn.Module):
        def __init__(self, a, b):
            super().__init__()
            self.c1, self.n1 = nn.Conv2d(a, b, 3, 2, 1, bias=False), nn.GroupNorm(4, b)
            self.c2, self.n2 = nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.GroupNorm(4, b)
            self.skip = nn.Conv2d(a, b, 1, 2, bias=False)

        def forward(self, x):
            h = F.relu(self.n1(self.c1(x)))
            return F.relu(self.n2(self.c2(h)) + self.skip(x))

    def __init__(self, classes):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 1, 1)
        self.layers = nn.Sequential(self.Block(16, 32), self.Block(32, 48), self.Block(48, 64))
        self.head = nn.Linear(64, classes)

    def forward(self, x):
        return self.head(self.layers(self.stem(x)).mean((2, 3)))


def endless(loader):
    while True:
        yield from loader


@torch.no_grad()
def accuracy(model, data):
    model.eval()
    x, y = data.tensors
    acc = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return acc


def pretrain(cfg):
    model = SmallResNet(cfg.source_classes)
    data = textures(1500, cfg.source_classes, cfg.size, 1, family=0)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.pretrain_lr)
    for step, (x, y) in enumerate(endless(DataLoader(data, cfg.batch, shuffle=True, drop_last=True))):
        if step == cfg.pretrain_steps:
            break
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0:
            print(f"[source] step {step} loss {loss.item():.4f}", flush=True)
    return model


class FineTuner:
    def __init__(self, model, cfg):
        self.model, self.cfg = model, cfg
        self.train = textures(1500, cfg.target_classes, cfg.size, 3, family=1)
        self.test = textures(400, cfg.target_classes, cfg.size, 4, family=1)
        steps = (
            [self.prepare_model, self.configure_optimizer] if MENDED else [self.configure_optimizer, self.prepare_model]
        )
        for fn in steps:
            fn()

    def prepare_model(self):
        self.model.head = nn.Linear(self.model.head.in_features, self.cfg.target_classes)

    def configure_optimizer(self):
        head = [p for n, p in self.model.named_parameters() if n.startswith("head")]
        body = [p for n, p in self.model.named_parameters() if not n.startswith("head")]
        self.opt = torch.optim.AdamW(
            [{"params": body, "lr": self.cfg.finetune_lr}, {"params": head, "lr": 10 * self.cfg.finetune_lr}],
            weight_decay=0.01,
        )

    def fit(self):
        loader = endless(DataLoader(self.train, self.cfg.batch, shuffle=True, drop_last=True))
        for step in range(self.cfg.finetune_steps):
            x, y = next(loader)
            loss = F.cross_entropy(self.model(x), y)
            self.model.zero_grad()
            loss.backward()
            self.opt.step()
            if step % 15 == 0:
                print(f"[target] step {step} loss {loss.item():.4f}", flush=True)
        print(f"[target] test accuracy {accuracy(self.model, self.test):.3f}")


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    FineTuner(pretrain(cfg), cfg).fit()


if __name__ == "__main__":
    main()
