# expect: sick
# symptom: loss falls well for a while, then is nan from one step to the next and stays nan
# axis: loss
# cause: the distance is a bare square root; a pair of twice the same window has distance 0, its gradient is nan
# says: (sqrt|square.?root|distance)\b.*(zero|\b0\b|identical|same|dup)|(zero|identical).*(sqrt|root|dist)
# onset_step: 24
# fix: add a small constant under the square root of the pair distance
# mended: the script applies that change if the environment has MENDED=1
"""Siamese embedding of wrist-sensor windows; retrieval of the activity by nearest neighbour."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
ALT = os.environ.get("MENDED") == "1"
SEED, STEPS, BATCH, MARGIN = 11, 320, 32, 1.5
N_CLASS, PER_CLASS, T = 6, 420, 64


def record(n_per_class, rng):
    xs, ys = [], []
    t = np.arange(T) / T
    for c in range(N_CLASS):
        f = 2.0 + 1.3 * c
        for _ in range(n_per_class):
            ph = rng.uniform(0, 2 * np.pi)
            a = rng.uniform(0.7, 1.3)
            w = np.stack(
                [
                    a * np.sin(2 * np.pi * f * t + ph),
                    a * np.cos(2 * np.pi * f * t * (1 + 0.1 * (c % 2)) + ph),
                    0.5 * np.sign(np.sin(2 * np.pi * (f / 2) * t + ph)),
                ]
            )
            xs.append(w + 0.5 * rng.standard_normal(w.shape))
            ys.append(c)
    return np.asarray(xs, dtype=np.float32), np.asarray(ys)


class WindowPairs(Dataset):
    """Half of the items are two windows of one activity, the other half of two activities."""

    def __init__(self, x, y, length, seed):
        self.x, self.y = torch.from_numpy(x), y
        self.pool = {c: np.flatnonzero(y == c) for c in range(N_CLASS)}
        rng = np.random.default_rng(seed)
        self.pairs = []
        for k in range(length):
            c = int(rng.integers(N_CLASS))
            d = c if k % 2 == 0 else (c + int(rng.integers(1, N_CLASS))) % N_CLASS
            i, j = rng.choice(self.pool[c]), rng.choice(self.pool[d])
            self.pairs.append((int(i), int(j), float(c == d)))

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, k):
        i, j, same = self.pairs[k]
        return self.x[i], self.x[j], torch.tensor(same)


class Encoder(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(3, 24, 7, stride=2, padding=3),
            nn.GroupNorm(4, 24),
            nn.ReLU(),
            nn.Conv1d(24, 48, 5, stride=2, padding=2),
            nn.GroupNorm(4, 48),
            nn.ReLU(),
            nn.Conv1d(48, 48, 3, padding=1),
            nn.ReLU(),
        )
        self.proj = nn.Linear(48, dim)

    def forward(self, x):
        return self.proj(self.conv(x).mean(-1))


def pair_distance(a, b):
    sq = (a - b).pow(2).sum(dim=1)
    return torch.sqrt(sq + 1e-8 if ALT else sq)


def contrastive(d, same):
    pull = same * d.pow(2)
    push = (1 - same) * F.relu(MARGIN - d).pow(2)
    return (pull + push).mean()


@torch.no_grad()
def retrieval(enc, bank_x, bank_y, qx, qy):
    enc.eval()
    d = torch.cdist(enc(qx), enc(bank_x))
    hit = (bank_y[d.argmin(1)] == qy).float().mean().item()
    enc.train()
    return hit


def main():
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    x, y = record(PER_CLASS, rng)
    qx, qy = record(40, rng)
    pairs = WindowPairs(x, y, STEPS * BATCH, SEED + 1)
    loader = DataLoader(pairs, batch_size=BATCH, shuffle=True, generator=torch.Generator().manual_seed(SEED))
    enc = Encoder()
    opt = torch.optim.AdamW(enc.parameters(), lr=1.5e-3, weight_decay=1e-4)
    bank = torch.from_numpy(x[::6]), torch.from_numpy(y[::6])
    query = torch.from_numpy(qx), torch.from_numpy(qy)
    for step, (a, b, same) in enumerate(loader, 1):
        za, zb = enc(torch.cat([a, b])).chunk(2)
        loss = contrastive(pair_distance(za, zb), same)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0 or step == 1:
            print(f"step {step:4d} loss {loss.item():.4f}")
        if step % 80 == 0:
            print(f"step {step:4d} retrieval@1 {retrieval(enc, *bank, *query):.3f}")
    print(f"final loss {loss.item():.4f} retrieval@1 {retrieval(enc, *bank, *query):.3f}")


if __name__ == "__main__":
    main()
