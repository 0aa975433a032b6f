# expect: healthy
# symptom: the loss jumps up several times (each restart of the cosine schedule) and comes down lower each time
# axis: none
# mended: none
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts

torch.set_num_threads(1)
torch.manual_seed(4)

SIZE, CLASSES, BATCH = 20, 8, 48
FIRST_CYCLE, CYCLES = 2, 3  # epochs; cycle lengths 2, 4, 8


def shapes(n, seed):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:SIZE, :SIZE].astype(np.float32)
    y = rng.integers(0, CLASSES, n)
    img = np.empty((n, 3, SIZE, SIZE), np.float32)
    for i in range(n):
        cx, cy, r = rng.uniform(7, 13), rng.uniform(7, 13), rng.uniform(4, 7)
        dx, dy = xx - cx, yy - cy
        kind, filled = y[i] % 4, y[i] // 4
        d = [
            np.hypot(dx, dy),
            np.maximum(abs(dx), abs(dy)),
            abs(dx) + abs(dy),
            np.minimum(abs(dx), abs(dy)) * 3 + 0.4 * np.maximum(abs(dx), abs(dy)),
        ][kind]
        m = (d < r) if filled else (abs(d - r) < 1.1)
        img[i] = rng.uniform(0, 0.4, (3, 1, 1)) + m * rng.uniform(0.3, 0.6, (3, 1, 1))
    img += rng.normal(0, 0.42, img.shape)
    return torch.from_numpy(img - 0.35), torch.from_numpy(y)


class ResBlock(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
        self.c2, self.b2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
        self.skip = nn.Conv2d(i, o, 1, stride) if stride > 1 or i != o else nn.Identity()

    def forward(self, x):
        h = F.relu(self.b1(self.c1(x)))
        return F.relu(self.b2(self.c2(h)) + self.skip(x))


class SmallResNet(nn.Module):
    def __init__(self, w=16):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, w, 3, 2, 1, bias=False), nn.BatchNorm2d(w), nn.ReLU())
        self.body = nn.Sequential(ResBlock(w, w, 1), ResBlock(w, 2 * w, 2), ResBlock(2 * w, 2 * w, 1))
        self.fc = nn.Linear(2 * w, CLASSES)

    def forward(self, x):
        return self.fc(self.body(self.stem(x)).mean((2, 3)))


def augment(x):
    if torch.rand(()) < 0.5:
        x = x.flip(3)
    dx, dy = torch.randint(-2, 3, (2,)).tolist()
    return torch.roll(x, (dy, dx), (2, 3))


def main():
    x, y = shapes(2000, 1)
    xv, yv = shapes(400, 2)
    model = SmallResNet()
    opt = torch.optim.SGD(model.parameters(), lr=0.25, momentum=0.9, weight_decay=5e-4, nesterov=True)
    sched = CosineAnnealingWarmRestarts(opt, T_0=FIRST_CYCLE, T_mult=2, eta_min=1e-4)
    epochs = sum(FIRST_CYCLE * 2**i for i in range(CYCLES))
    iters = len(x) // BATCH
    step, t0 = 0, time.time()
    for epoch in range(epochs):
        model.train()
        for i, idx in enumerate(torch.randperm(len(x))[: iters * BATCH].split(BATCH)):
            loss = F.cross_entropy(model(augment(x[idx])), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step(epoch + (i + 1) / iters)
            if step % 10 == 0:
                print(
                    f"step {step:4d} loss {loss.item():.4f} lr {opt.param_groups[0]['lr']:.4f} "
                    f"({time.time() - t0:.1f}s)"
                )
            step += 1
        model.eval()
        with torch.no_grad():
            acc = (model(xv).argmax(-1) == yv).float().mean().item()
        print(f"== epoch {epoch} valid accuracy {acc:.3f}")


if __name__ == "__main__":
    main()
