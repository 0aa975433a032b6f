# expect: sick
# symptom: training goes well for a while, then the loss is NaN from one step to the next although it was small
# axis: loss
# cause: the distance is a bare sqrt, whose gradient at 0 is infinite; a pair of one sample with itself gives NaN
# says: sqrt|square.?root|(zero|identical|itself).*(distance|pair|\bnorm\b)|(distance|pair).*(zero|\b0|identical)
# onset_step: 72
# fix: add a small epsilon inside the square root
# mended: the script applies that change if the environment has MENDED=1
"""Siamese network for pen strokes of writers: contrastive loss on pairs."""

import os
import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
EPS = 1e-8 if os.environ.get("MENDED") == "1" else 0.0
N_WRITERS, PER_WRITER, T = 12, 400, 40


def synth_strokes(seed):
    """x, y, pressure curves; each writer has his own harmonics, each sample its own jitter."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 1, T)
    out = np.zeros((N_WRITERS, PER_WRITER, 3, T), dtype=np.float32)
    for w in range(N_WRITERS):
        amp = rng.normal(0, 1, (3, 4))
        phase = rng.uniform(0, 2 * np.pi, (3, 4))
        for s in range(PER_WRITER):
            speed = rng.normal(1, 0.05)
            a = amp + rng.normal(0, 0.22, amp.shape)
            p = phase + rng.normal(0, 0.2, phase.shape)
            k = np.arange(1, 5)[None, :, None]
            curve = (a[..., None] * np.sin(2 * np.pi * k * speed * t + p[..., None])).sum(1)
            out[w, s] = 0.5 * curve + rng.normal(0, 0.25, (3, T))
    return torch.from_numpy(out)


class PairSampler:
    """Half genuine pairs, half pairs of two different writers."""

    def __init__(self, strokes, batch, seed):
        self.strokes, self.batch = strokes, batch
        self.rng = np.random.default_rng(seed)

    def __call__(self):
        b, n = self.batch, self.strokes.shape[1]
        same = np.arange(b) < b // 2
        wa = self.rng.integers(0, N_WRITERS, b)
        shift = self.rng.integers(1, N_WRITERS, b)
        wb = np.where(same, wa, (wa + shift) % N_WRITERS)
        ia, ib = self.rng.integers(0, n, b), self.rng.integers(0, n, b)
        return self.strokes[wa, ia], self.strokes[wb, ib], torch.from_numpy(same.astype(np.float32))


class StrokeEncoder(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(3, 24, 5, stride=2), nn.ReLU(), nn.Conv1d(24, 32, 5, stride=2), nn.ReLU())
        self.proj = nn.Sequential(nn.Flatten(), nn.Linear(32 * 7, 64), nn.ReLU(), nn.Linear(64, dim))

    def forward(self, x):
        return self.proj(self.conv(x))


def distance(a, b):
    return torch.sqrt((a - b).pow(2).sum(dim=1) + EPS)


class ContrastiveLoss(nn.Module):
    def __init__(self, margin=2.0):
        super().__init__()
        self.margin = margin

    def forward(self, za, zb, same):
        d = distance(za, zb)
        pull = same * d.pow(2)
        push = (1 - same) * (self.margin - d).clamp(min=0).pow(2)
        return (pull + push).mean()


@torch.no_grad()
def verification_accuracy(net, sampler, rounds=10):
    ds, ys = [], []
    for _ in range(rounds):
        a, b, y = sampler()
        ds.append(distance(net(a), net(b)))
        ys.append(y)
    d, y = torch.cat(ds), torch.cat(ys)
    return ((d < 1.0).float() == y).float().mean().item()


def main():
    torch.manual_seed(21)
    strokes = synth_strokes(4)
    train = PairSampler(strokes[:, :360], batch=32, seed=29)
    valid = PairSampler(strokes[:, 360:], batch=64, seed=9)
    net = StrokeEncoder()
    criterion = ContrastiveLoss()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    running = None
    for it in range(400):
        a, b, same = train()
        loss = criterion(net(a), net(b), same)
        opt.zero_grad()
        loss.backward()
        opt.step()
        running = loss.item() if running is None else 0.9 * running + 0.1 * loss.item()
        if it % 10 == 0:
            print(f"iter {it:4d} loss {loss.item():.4f} avg {running:.4f}")
        if it % 100 == 99:
            print(f"iter {it:4d} verification acc {verification_accuracy(net, valid):.3f}")


if __name__ == "__main__":
    main()
