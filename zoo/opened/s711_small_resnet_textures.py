# expect: sick
# symptom: the loss falls for a few steps, then stands still at a high value for all remaining epochs; train and test accuracy stay poor
# axis: schedule
# cause: StepLR is meant to count epochs (step_size=15 of 20 epochs) but scheduler.step() is called after every batch, so the learning rate is divided by ten every 15 iterations and is practically zero before the second epoch
# says: (sched|steplr|lr|learning.?rate)[^.]{0,90}(per|each|every|after (a|each|every)|inside the|in the inner)[ -]?(single )?(batch|iteration|step|mini-?batch|inner|\d+ (steps|iterations|batches))|(lr|learning.?rate)[^.]{0,60}(decay\w*|drop\w*|divid\w*|shr[aiu]nk?\w*|vanish\w*|annealed)[^.]{0,60}(too (early|fast|soon|quick)|(to|near|almost|practically|effectively) (zero|nothing|0)|vanish)|(decay\w*|schedul\w*)[^.]{0,40}too (early|fast|soon|quick)|sched\w*[^.]{0,30}step\w*[ _-](too[ _-](often|many)|x ?n|per[ _-]batch|every[ _-]batch)
# onset_step: 16
# fix: call scheduler.step() once per epoch, after the batch loop
# mended: with MENDED=1 scheduler.step() moves from the batch loop to the end of the epoch
import argparse
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

MENDED = os.environ.get("MENDED") == "1"


def make_images(n, classes, rng, size=16):
    """Oriented gratings in colour; the class decides orientation and colour phase."""
    yy, xx = np.mgrid[0:size, 0:size].astype(np.float32) / size
    y = rng.integers(0, classes, n)
    x = np.empty((n, 3, size, size), np.float32)
    for i, c in enumerate(y):
        theta = np.pi * (c % (classes // 2)) / (classes // 2) + rng.normal(0, 0.06)
        freq = 2.5 if c < classes // 2 else 4.0
        phase = rng.uniform(0, 2 * np.pi)
        wave = np.sin(2 * np.pi * freq * (xx * np.cos(theta) + yy * np.sin(theta)) + phase)
        for ch in range(3):
            x[i, ch] = wave * rng.uniform(0.4, 1.0) + rng.normal(0, 0.8, (size, size))
    return torch.from_numpy(x), torch.from_numpy(y).long()


class Block(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.short = nn.Identity() if stride == 1 and cin == cout else nn.Conv2d(cin, cout, 1, stride)

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        h = self.bn2(self.conv2(h))
        return F.relu(h + self.short(x))


class SmallResNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 12, 3, 1, 1, bias=False), nn.BatchNorm2d(12), nn.ReLU())
        self.layers = nn.Sequential(Block(12, 12), Block(12, 24, 2), Block(24, 32, 2))
        self.fc = nn.Linear(32, classes)

    def forward(self, x):
        h = self.layers(self.stem(x))
        return self.fc(h.mean((2, 3)))


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hit = tot = 0
    for x, y in loader:
        hit += (model(x).argmax(1) == y).sum().item()
        tot += len(y)
    return hit / tot


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=20)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--lr", type=float, default=0.02)
    p.add_argument("--lr-step-size", type=int, default=15, help="decrease lr every step-size epochs")
    p.add_argument("--lr-gamma", type=float, default=0.1)
    p.add_argument("--classes", type=int, default=10)
    p.add_argument("--seed", type=int, default=3)
    args = p.parse_args()

    torch.set_num_threads(1)
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)

    train = DataLoader(TensorDataset(*make_images(1600, args.classes, rng)), args.batch_size, shuffle=True)
    test = DataLoader(TensorDataset(*make_images(500, args.classes, rng)), 250)

    model = SmallResNet(args.classes)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=args.lr_step_size, gamma=args.lr_gamma)

    for epoch in range(args.epochs):
        model.train()
        running = 0.0
        for x, y in train:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            if not MENDED:
                scheduler.step()
            running += loss.item() * len(y)
        if MENDED:
            scheduler.step()
        print(f"epoch {epoch:2d} loss {running / len(train.dataset):.4f} test acc {accuracy(model, test):.3f}")


if __name__ == "__main__":
    main()
