# expect: healthy
# symptom: the learning rate jumps back to its maximum every 140 steps and the loss leaps up each time (SGDR warm restarts, snapshot ensemble)
# axis: none
# mended: none
import copy
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"

MEL, FRAMES, CLASSES = 24, 32, 8


def make_clips(n, seed):
    """Chirps: class = start band (4) x direction (2), with random speed, onset and noise."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n)
    x = rng.normal(0, 1.1, size=(n, 1, MEL, FRAMES)).astype(np.float32)
    t = np.arange(FRAMES)
    for i in range(n):
        band, down = y[i] % 4, y[i] // 4
        on = rng.integers(0, 10)
        f = 4 + band * 4.5 + rng.normal(0, 0.7) + (1 - 2 * down) * rng.uniform(0.15, 0.4) * (t - on - 8)
        env = ((t >= on) & (t < on + 20)) * rng.uniform(0.9, 1.8)
        x[i, 0] += env * np.exp(-0.5 * ((np.arange(MEL)[:, None] - f[None]) / 1.1) ** 2)
    return torch.from_numpy(x), torch.from_numpy(y)


class ConvNet(nn.Module):
    def __init__(self, c=16):
        super().__init__()

        def block(i, o):
            return nn.Sequential(
                nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2)
            )

        self.net = nn.Sequential(block(1, c), block(c, 2 * c), block(2 * c, 2 * c))
        self.fc = nn.Linear(2 * c * 3, CLASSES)

    def forward(self, x):
        return self.fc(self.net(x).mean(-1).flatten(1))


class SnapshotTrainer:
    def __init__(self, cycle=140, cycles=4, batch=48, max_lr=1.0):
        self.x, self.y = make_clips(5000, 0)
        self.xt, self.yt = make_clips(800, 1)
        self.model = ConvNet()
        self.opt = torch.optim.SGD(self.model.parameters(), lr=max_lr, momentum=0.9, nesterov=True, weight_decay=5e-4)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(self.opt, T_0=cycle, eta_min=1e-4)
        self.cycle, self.cycles, self.batch = cycle, cycles, batch
        self.snapshots = []

    @torch.no_grad()
    def accuracy(self, models):
        prob = 0
        for m in models:
            m.eval()
            prob = prob + m(self.xt).softmax(1)
        return (prob.argmax(1) == self.yt).float().mean().item()

    def run(self):
        perm = torch.randperm(len(self.x))
        pos = 0
        for step in range(self.cycle * self.cycles):
            if pos + self.batch > len(self.x):
                perm, pos = torch.randperm(len(self.x)), 0
            ix = perm[pos : pos + self.batch]
            pos += self.batch
            loss = F.cross_entropy(self.model(self.x[ix]), self.y[ix])
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.sched.step()
            if step % 10 == 0 or step % self.cycle in (2, 4, 6, 8):
                print(f"step {step:4d} loss {loss.item():.4f} lr {self.opt.param_groups[0]['lr']:.4f}")
            if (step + 1) % self.cycle == 0:
                self.snapshots.append(copy.deepcopy(self.model))
                print(
                    f"   snapshot {len(self.snapshots)} acc {self.accuracy(self.snapshots[-1:]):.3f} "
                    f"ensemble {self.accuracy(self.snapshots):.3f}"
                )
                self.model.train()


if __name__ == "__main__":
    torch.manual_seed(0)
    SnapshotTrainer().run()
