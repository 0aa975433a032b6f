# expect: healthy
# symptom: most parameters are frozen and get no gradient at first; resembles a backbone left out by accident
# axis: none
"""Pretrain a small CNN on plentiful shapes, then adapt it to a new task: head first, then the last stage too."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
SIZE = 20


def draw(n, seed, target):
    """Discs, squares, crosses and rings, filled bright or dark; task A is the shape, task B shape and polarity."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:SIZE, :SIZE]
    x = rng.normal(0, 0.3, (n, 1, SIZE, SIZE)).astype(np.float32)
    shape, dark = rng.integers(0, 4, n), rng.integers(0, 2, n)
    for i in range(n):
        cy, cx, r = rng.uniform(7, 13), rng.uniform(7, 13), rng.uniform(4, 6.5)
        dy, dx = np.abs(yy - cy), np.abs(xx - cx)
        dist = np.hypot(dy, dx)
        region = [
            dist < r,
            np.maximum(dy, dx) < 0.9 * r,
            (np.minimum(dy, dx) < 1.3) & (np.maximum(dy, dx) < r),
            (dist < r) & (dist > r - 2),
        ][shape[i]]
        x[i, 0][region] += -1.2 if dark[i] else 1.2
    y = shape if target == "shape" else 2 * shape + dark
    return torch.from_numpy(x), torch.from_numpy(y)


def stage(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(), nn.MaxPool2d(2)
    )


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.stem, self.mid, self.last = stage(1, 16), stage(16, 24), stage(24, 32)
        self.head = nn.Linear(32 * 4, classes)

    def forward(self, x):
        return self.head(self.last(self.mid(self.stem(x))).flatten(1))


@torch.no_grad()
def accuracy(net, x, y):
    was = {m: m.training for m in net.modules()}
    net.eval()
    acc = (net(x).argmax(1) == y).float().mean().item()
    for m, flag in was.items():
        m.training = flag
    return acc


def run(net, opt, x, y, steps, name, gen):
    for step in range(steps):
        idx = torch.randint(len(x), (48,), generator=gen)
        loss = F.cross_entropy(net(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"{name} step {step:4d} loss {loss.item():.4f}")


def main():
    torch.manual_seed(1)
    gen = torch.Generator().manual_seed(2)
    net = Net(4)
    xa, ya = draw(3000, 0, "shape")
    run(net, torch.optim.AdamW(net.parameters(), lr=3e-3), xa, ya, 160, "pretrain", gen)

    xb, yb = draw(600, 5, "both")
    xv, yv = draw(500, 6, "both")
    net.head = nn.Linear(net.head.in_features, 8)
    for part in (net.stem, net.mid, net.last):
        part.requires_grad_(False)
        part.eval()
    opt = torch.optim.AdamW(net.head.parameters(), lr=3e-3, weight_decay=1e-3)
    run(net, opt, xb, yb, 120, "head", gen)
    print(f"after head only: valid accuracy {accuracy(net, xv, yv):.3f}")

    net.last.requires_grad_(True)
    opt.add_param_group({"params": list(net.last.parameters()), "lr": 1e-3})
    run(net, opt, xb, yb, 120, "last+head", gen)
    print(f"after last stage: valid accuracy {accuracy(net, xv, yv):.3f}")


if __name__ == "__main__":
    main()
