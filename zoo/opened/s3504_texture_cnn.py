# expect: sick
# symptom: the loss jumps, from one step on it is stuck at chance (log of the number of classes)
# axis: harness
# cause: the loss is not divided by the number of accumulated micro-batches, so gradients sum to 8 times the size
# says: (accum|micro).{0,120}(divi|averag|scal|sum|times|larger|mean|normal)|(divi|averag|scal).{0,80}(accum|micro)
# onset_step: 0
# fix: divide the loss of each micro-batch by ACCUM before backward
# mended: the script applies that change if the environment has MENDED=1
"""Surface texture classes from 20x20 patches. Small micro-batches because the target box has little memory."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
CLASSES, SIZE, MICRO, ACCUM, EPOCHS = 6, 20, 16, 8, 4


def make_patches(n, seed):
    """Oriented gratings of three directions and two wavelengths under noise and uneven light."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:SIZE, :SIZE]
    labels = rng.integers(0, CLASSES, n)
    out = np.empty((n, 1, SIZE, SIZE), np.float32)
    for i, c in enumerate(labels):
        angle = (c % 3) * np.pi / 3 + rng.normal(0, 0.1)
        wave = (4.0, 7.0)[c // 3]
        phase = rng.uniform(0, 2 * np.pi)
        g = np.sin(2 * np.pi * (xx * np.cos(angle) + yy * np.sin(angle)) / wave + phase)
        light = rng.normal(0, 0.03) * (xx - SIZE / 2) + rng.normal(0, 0.03) * (yy - SIZE / 2)
        out[i, 0] = g + light + rng.normal(0, 0.8, g.shape)
    return TensorDataset(torch.from_numpy(out), torch.from_numpy(labels))


class TextureNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.c1 = nn.Conv2d(1, width, 5, padding=2)
        self.c2 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.c3 = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.fc1 = nn.Linear(2 * width * 25, 64)
        self.fc2 = nn.Linear(64, CLASSES)
        for m in self.modules():
            if isinstance(m, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(m.weight, nonlinearity="relu")
                nn.init.zeros_(m.bias)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.c1(x)), 2)
        x = F.max_pool2d(F.relu(self.c2(x)), 2)
        x = F.relu(self.c3(x)).flatten(1)
        return self.fc2(F.relu(self.fc1(x)))


@torch.no_grad()
def evaluate(net, loader):
    net.eval()
    hits = sum((net(x).argmax(1) == y).sum().item() for x, y in loader)
    net.train()
    return hits / len(loader.dataset)


def train_epoch(net, loader, opt, epoch, step):
    opt.zero_grad()
    shown = 0.0
    for i, (x, y) in enumerate(loader):
        loss = F.cross_entropy(net(x), y)
        (loss / ACCUM if MENDED else loss).backward()
        shown += loss.item() / ACCUM
        if (i + 1) % ACCUM == 0:
            opt.step()
            opt.zero_grad()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step:4d} loss {shown:.4f}")
            step += 1
            shown = 0.0
    return step


def main():
    torch.manual_seed(21)
    train = DataLoader(make_patches(6400, 1), batch_size=MICRO, shuffle=True, drop_last=True)
    valid = DataLoader(make_patches(800, 2), batch_size=200)
    net = TextureNet()
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    print(f"effective batch {MICRO * ACCUM}")
    step = 0
    for epoch in range(EPOCHS):
        step = train_epoch(net, train, opt, epoch, step)
        print(f"epoch {epoch} valid accuracy {evaluate(net, valid):.3f}")


if __name__ == "__main__":
    main()
