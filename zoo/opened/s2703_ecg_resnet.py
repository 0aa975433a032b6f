# expect: sick
# symptom: after the first validation the training loss hiccups, then falls to almost nothing while validation loss grows far above its best value (worse final result, silent)
# axis: harness
# cause: validate() puts the network into eval mode and nobody calls model.train() again, so after the first validation all training runs without dropout and with frozen BatchNorm running statistics
# says: (eval\w*[ -]?mode|\.eval\(\)|model\.train\(\)|train(ing)?[- ]mode|mode.{0,30}(eval|train)).{0,200}(never|not|n't|no longer|forg|miss|without|stay|remain|left|stuck|again|back|restor|nobody|rest of|frozen|off|disabled)|(never|not|forg\w*|miss\w*|without|fail\w*|n't|lack\w*|no).{0,60}(model\.train\(\)|back (in)?to train|train(ing)?[- ]mode)|(stay|remain|left|stuck|still)\w*.{0,20}\beval
# onset_step: 121
# fix: call model.train() after validation (at the end of validate or at the top of the loop)
# mended: yes
"""Beat classification on single-lead ECG windows (four rhythm classes).

1-D residual network, SGD with momentum, validation every 120 steps.
"""

import os
import argparse
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)

FS, LENGTH = 100, 256


def beat(t, centre, width, amp):
    return amp * np.exp(-0.5 * ((t - centre) / width) ** 2)


def synth_window(label, rng):
    """0 regular, 1 irregular intervals, 2 wide complexes, 3 missing first wave."""
    t = np.arange(LENGTH) / FS
    x = np.zeros(LENGTH)
    rate = rng.uniform(0.55, 0.85)
    pos = rng.uniform(0, 0.4)
    while pos < LENGTH / FS:
        jitter = rng.normal(0, 0.16 if label == 1 else 0.02)
        w = 0.032 if label == 2 else 0.022
        x += beat(t, pos, w, rng.uniform(0.8, 1.2))
        if label != 3:
            x += beat(t, pos - 0.15, 0.03, 0.22)
        x += beat(t, pos + 0.22, 0.05, 0.3)
        pos += rate + jitter
    x += 0.25 * np.sin(2 * np.pi * rng.uniform(0.1, 0.5) * t + rng.uniform(0, 6.28))
    x += rng.normal(0, 0.1, LENGTH)
    return (x * rng.uniform(0.7, 1.4)).astype(np.float32)


class EcgWindows(Dataset):
    def __init__(self, n, seed, annotator_noise=0.0):
        rng = np.random.default_rng(seed)
        self.y = rng.integers(0, 4, n)
        self.x = np.stack([synth_window(c, rng) for c in self.y])
        flip = rng.random(n) < annotator_noise
        self.y[flip] = rng.integers(0, 4, flip.sum())

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return torch.from_numpy(self.x[i])[None], int(self.y[i])


class ResBlock(nn.Module):
    def __init__(self, cin, cout, stride, p):
        super().__init__()
        self.bn1 = nn.BatchNorm1d(cin)
        self.conv1 = nn.Conv1d(cin, cout, 7, stride, 3, bias=False)
        self.bn2 = nn.BatchNorm1d(cout)
        self.drop = nn.Dropout(p)
        self.conv2 = nn.Conv1d(cout, cout, 7, 1, 3, bias=False)
        self.skip = nn.Conv1d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        h = self.conv1(F.relu(self.bn1(x)))
        h = self.conv2(self.drop(F.relu(self.bn2(h))))
        return h + self.skip(x)


class EcgNet(nn.Module):
    def __init__(self, width=16, p=0.4, classes=4):
        super().__init__()
        self.stem = nn.Conv1d(1, width, 9, 2, 4, bias=False)
        self.body = nn.Sequential(
            ResBlock(width, width, 2, p),
            ResBlock(width, 2 * width, 2, p),
            ResBlock(2 * width, 2 * width, 2, p),
            ResBlock(2 * width, 4 * width, 2, p),
        )
        self.norm = nn.BatchNorm1d(4 * width)
        self.head = nn.Sequential(nn.Dropout(p), nn.Linear(4 * width, classes))

    def forward(self, x):
        h = F.relu(self.norm(self.body(self.stem(x))))
        return self.head(h.mean(-1))


def validate(model, loader):
    model.eval()
    hit = n = 0
    total = 0.0
    with torch.no_grad():
        for x, y in loader:
            out = model(x)
            total += F.cross_entropy(out, y, reduction="sum").item()
            hit += (out.argmax(1) == y).sum().item()
            n += len(y)
    if os.environ.get("MENDED") == "1":
        model.train()
    return total / n, hit / n


def batches_forever(loader):
    while True:
        yield from loader


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=840)
    ap.add_argument("--val-every", type=int, default=120)
    ap.add_argument("--lr", type=float, default=0.02)
    ap.add_argument("--seed", type=int, default=3)
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    train_ds = EcgWindows(800, seed=11, annotator_noise=0.2)
    val_ds = EcgWindows(800, seed=12)
    train_dl = DataLoader(train_ds, batch_size=32, shuffle=True, drop_last=True)
    val_dl = DataLoader(val_ds, batch_size=200)

    model = EcgNet()
    opt = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=args.steps)

    model.train()
    window = []
    for step, (x, y) in enumerate(batches_forever(train_dl), start=1):
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        window.append(loss.item())
        if step % 40 == 0:
            print(f"step {step:4d}  train loss {np.mean(window):.4f}")
            window.clear()
        if step % args.val_every == 0:
            vl, va = validate(model, val_dl)
            print(f"   --> val loss {vl:.4f}  val acc {100 * va:.1f}%")
        if step == args.steps:
            break


if __name__ == "__main__":
    main()
