# expect: sick
# symptom: training goes perfectly (accuracy 1.0), but the averaged model's validation accuracy stays far below the training accuracy
# axis: harness
# cause: the EMA copy used for evaluation only averages the parameters; its BatchNorm buffers (running mean and variance) are never copied and stay at their initial values
# says: (ema|averag|shadow|evaluat\w* (copy|model)).*(buffer|running[_ ](mean|var|stat)|batch ?norm|\bbn\b|statistic)|(buffer|running[_ ](mean|var|stat)|batch ?norm|\bbn\b).*(ema|averag|shadow|evaluat\w* (copy|model))
# onset_step: 1
# fix: copy the buffers (BatchNorm running statistics) of the model into the EMA model at each update
# mended: yes
import copy
import os
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

MENDED = os.environ.get("MENDED") == "1"


@dataclass
class Config:
    seed: int = 3
    batch_size: int = 64
    epochs: int = 20
    lr: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 5e-4
    ema_decay: float = 0.97
    width: int = 24


class ConvBlock(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride=stride, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(cout)
        self.skip = cin == cout and stride == 1

    def forward(self, x):
        y = F.relu(self.bn(self.conv(x)))
        return x + y if self.skip else y


class StrokeNet(nn.Module):
    def __init__(self, width, classes=10):
        super().__init__()
        self.body = nn.Sequential(
            ConvBlock(1, width),
            ConvBlock(width, width),
            ConvBlock(width, 2 * width, stride=2),
            ConvBlock(2 * width, 2 * width),
            ConvBlock(2 * width, 4 * width, stride=2),
        )
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


class WeightAverager:
    def __init__(self, model, decay):
        self.decay = decay
        self.module = copy.deepcopy(model).eval()
        for p in self.module.parameters():
            p.requires_grad_(False)
        self.count = 0

    @torch.no_grad()
    def update(self, model):
        self.count += 1
        d = min(self.decay, (1 + self.count) / (10 + self.count))
        for avg, p in zip(self.module.parameters(), model.parameters()):
            avg.lerp_(p, 1 - d)
        if MENDED:
            for avg, b in zip(self.module.buffers(), model.buffers()):
                avg.copy_(b)


def make_loaders(cfg):
    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    y = torch.tensor(digits.target)
    order = torch.from_numpy(np.random.RandomState(cfg.seed).permutation(len(x)))
    tr, va = order[:1400], order[1400:]
    mean, std = x[tr].mean(), x[tr].std()
    x = (x - mean) / std
    g = torch.Generator().manual_seed(cfg.seed)
    train = DataLoader(TensorDataset(x[tr], y[tr]), cfg.batch_size, shuffle=True, drop_last=True, generator=g)
    valid = DataLoader(TensorDataset(x[va], y[va]), 200)
    return train, valid


@torch.no_grad()
def accuracy(model, loader):
    hit = n = 0
    loss = 0.0
    for x, y in loader:
        out = model(x)
        loss += F.cross_entropy(out, y, reduction="sum").item()
        hit += (out.argmax(1) == y).sum().item()
        n += len(y)
    return hit / n, loss / n


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    torch.set_num_threads(1)
    train, valid = make_loaders(cfg)
    model = StrokeNet(cfg.width)
    averager = WeightAverager(model, cfg.ema_decay)
    opt = torch.optim.SGD(
        model.parameters(), lr=cfg.lr, momentum=cfg.momentum, weight_decay=cfg.weight_decay, nesterov=True
    )
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, cfg.epochs * len(train))
    step = 0
    for epoch in range(cfg.epochs):
        model.train()
        hits = seen = 0
        for x, y in train:
            out = model(x)
            loss = F.cross_entropy(out, y, label_smoothing=0.02)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            sched.step()
            averager.update(model)
            hits += (out.argmax(1) == y).sum().item()
            seen += len(y)
            step += 1
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.4f}")
        acc, vloss = accuracy(averager.module, valid)
        print(f"epoch {epoch} train_acc {hits / seen:.3f} val_acc {acc:.3f} val_loss {vloss:.3f}")


if __name__ == "__main__":
    main()
