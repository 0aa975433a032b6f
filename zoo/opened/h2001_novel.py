# expect: healthy
# symptom: most parameters get no gradient and the loss jumps up again and again (a frozen pretrained body with a new head under warm restarts)
# axis: none
# mended: none
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts, OneCycleLR
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Config:
    seed: int = 1
    pre_steps: int = 200
    head_steps: int = 350
    cycle: int = 50
    head_lr: float = 0.8


class Body(nn.Module):
    def __init__(self, out=96):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1, stride=2, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.Conv2d(64, out, 3, padding=1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(),
        )
        self.pool = nn.AdaptiveAvgPool2d(2)

    def forward(self, x):
        return self.pool(self.net(x)).flatten(1)


class Classifier(nn.Module):
    def __init__(self, body, classes, frozen=False):
        super().__init__()
        self.body = body
        self.frozen = frozen
        self.head = nn.Linear(96 * 4, classes)
        if frozen:
            body.requires_grad_(False)
            nn.init.zeros_(self.head.weight)
            nn.init.zeros_(self.head.bias)

    def train(self, mode=True):
        super().train(mode)
        if self.frozen:
            self.body.eval()  # keep the base statistics
        return self

    def forward(self, x):
        if self.frozen:
            with torch.no_grad():
                z = self.body(x)
        else:
            z = self.body(x)
        return self.head(F.normalize(z, dim=1) * 8 if self.frozen else z)


def split(seed):
    d = load_digits()
    x = torch.tensor(d.images, dtype=torch.float32).unsqueeze(1) / 8 - 1
    y = torch.tensor(d.target)
    perm = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    x, y = x[perm], y[perm]
    base, novel = y < 5, y >= 5
    return (x[base], y[base]), (x[novel], y[novel] - 5)


def endless(loader):
    while True:
        for b in loader:
            yield b


@torch.no_grad()
def accuracy(model, x, y):
    was = model.training
    model.eval()
    acc = (model(x).argmax(1) == y).float().mean().item()
    model.train(was)
    return acc


def loop(model, x, y, steps, opt, sched, tag, batch=32):
    cut = int(0.75 * len(x))
    loader = DataLoader(TensorDataset(x[:cut], y[:cut]), batch, shuffle=True, drop_last=True)
    model.train()
    for step, (bx, by) in zip(range(1, steps + 1), endless(loader)):
        loss = F.cross_entropy(model(bx), by)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 10 == 0:
            print(f"{tag} step {step} loss {loss.item():.4f} lr {opt.param_groups[0]['lr']:.4f}")
    print(f"{tag} held-out accuracy {accuracy(model, x[cut:], y[cut:]):.3f}")


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    torch.set_num_threads(1)
    base, novel = split(cfg.seed)

    body = Body()
    model = Classifier(body, 5)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loop(model, *base, cfg.pre_steps, opt, OneCycleLR(opt, 3e-3, total_steps=cfg.pre_steps), "base")

    probe = Classifier(body, 5, frozen=True)
    opt = torch.optim.SGD(probe.head.parameters(), lr=cfg.head_lr, momentum=0.9, nesterov=True)
    sched = CosineAnnealingWarmRestarts(opt, T_0=cfg.cycle)
    loop(probe, *novel, cfg.head_steps, opt, sched, "novel")


if __name__ == "__main__":
    main()
