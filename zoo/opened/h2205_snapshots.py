# expect: healthy
# symptom: resembles a broken schedule and spiky loss: the rate leaps back up four times, loss jumps with it, and an occasional batch is eight times as big
# axis: schedule
"""Snapshot ensemble with warm restarts: counting galaxies' spiral arms on 16x16 synthetic images."""

import copy
import time

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
SIDE = 16


def galaxies(n, seed):
    rng = np.random.default_rng(seed)
    g = np.linspace(-1, 1, SIDE, dtype=np.float32)
    yy, xx = np.meshgrid(g, g, indexing="ij")
    r = np.hypot(xx, yy)[None] + 1e-3
    th = np.arctan2(yy, xx)[None]
    arms = rng.integers(1, 6, n)
    col = lambda a: a[:, None, None]
    wind = rng.uniform(1.0, 3.0, n)
    img = 0.5 + 0.5 * np.cos(col(arms) * (th + col(rng.uniform(0, 6.28, n))) + col(wind) * np.log(r))
    img = img * np.exp(-1.2 * r * r) + rng.normal(0, 0.55, (n, SIDE, SIDE))
    return torch.from_numpy(img.astype(np.float32))[:, None], torch.from_numpy(arms - 1)


class SEBlock(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(i, o, 3, stride, 1, bias=False),
            nn.BatchNorm2d(o),
            nn.ReLU(),
            nn.Conv2d(o, o, 3, 1, 1, bias=False),
            nn.BatchNorm2d(o),
        )
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(o, o // 4, 1), nn.ReLU(), nn.Conv2d(o // 4, o, 1), nn.Sigmoid()
        )
        self.skip = nn.Conv2d(i, o, 1, stride, bias=False)

    def forward(self, x):
        h = self.conv(x)
        return torch.relu(h * self.gate(h) + self.skip(x))


def network():
    return nn.Sequential(SEBlock(1, 16, 1), SEBlock(16, 24, 2), SEBlock(24, 32, 2), nn.Flatten(), nn.Linear(32 * 16, 5))


@torch.no_grad()
def probs(net, x):
    net.eval()
    p = net(x).softmax(1)
    net.train()
    return p


def main():
    torch.manual_seed(6)
    rng = np.random.default_rng(6)
    x, y = galaxies(6000, 0)
    vx, vy = galaxies(800, 1)
    net = network()
    opt = torch.optim.SGD(net.parameters(), lr=0.12, momentum=0.9, weight_decay=5e-4, nesterov=True)
    cycle, n_cycles = 90, 4
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=cycle, eta_min=1e-3)
    members, tic = [], time.time()
    for step in range(1, cycle * n_cycles + 1):
        size = 384 if rng.random() < 0.04 else 48
        idx = torch.from_numpy(rng.integers(0, len(x), size))
        loss = nn.functional.cross_entropy(net(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        lr = opt.param_groups[0]["lr"]
        sched.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f} lr {lr:.4f} batch {size}")
        if step % cycle == 0:
            members.append(copy.deepcopy(net).eval())
            single = (probs(net, vx).argmax(1) == vy).float().mean().item()
            ens = torch.stack([probs(m, vx) for m in members]).mean(0)
            print(
                f"cycle {step // cycle}: single {single:.3f}, ensemble of {len(members)} "
                f"{(ens.argmax(1) == vy).float().mean().item():.3f}"
            )
    print(f"{time.time() - tic:.1f}s")


if __name__ == "__main__":
    main()
