# expect: sick
# symptom: training goes well, then the loss turns to nan from one step to the next and stays there
# axis: loss
# cause: a pair may hold the same window twice; sqrt at distance 0 has an infinite slope, so gradients get NaN
# says: (sqrt|square.?root|distance).*(zero|\b0\b|eps|identical|infinit)|identical.*(pair|window)|itself
# onset_step: 147
# fix: add a small eps under the square root of the pair distance, so that zero distance is harmless
# mended: the script applies that change if the environment has MENDED=1
"""Metric learning for vibration windows: siamese encoder with a contrastive loss on pairs."""

import os

import numpy as np
import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

MACHINES, PER_MACHINE, WINDOW = 6, 2500, 64
EPS = 1e-8 if MENDED else 0.0


def record_windows(rng):
    t = np.arange(WINDOW)
    x, y = [], []
    for m in range(MACHINES):
        f1, f2 = 0.05 + 0.03 * m, 0.21 + 0.02 * m
        phase = rng.uniform(0, 2 * np.pi, (PER_MACHINE, 2))
        amp = rng.uniform(0.6, 1.4, (PER_MACHINE, 2))
        w = amp[:, :1] * np.sin(2 * np.pi * f1 * t + phase[:, :1])
        w = w + 0.6 * amp[:, 1:] * np.sin(2 * np.pi * f2 * t + phase[:, 1:])
        x.append(w + rng.normal(0, 0.4, w.shape))
        y.append(np.full(PER_MACHINE, m))
    return np.concatenate(x).astype(np.float32), np.concatenate(y)


class PairSampler:
    """Half of each batch are pairs from one machine, the other half from two machines."""

    def __init__(self, x, y, batch, seed):
        self.x, self.batch = x, batch
        self.rng = np.random.default_rng(seed)
        self.by_machine = [np.flatnonzero(y == m) for m in range(MACHINES)]

    def draw(self):
        left, right, same = [], [], []
        for k in range(self.batch):
            a = self.rng.integers(MACHINES)
            b = a if k % 2 == 0 else (a + self.rng.integers(1, MACHINES)) % MACHINES
            left.append(self.rng.choice(self.by_machine[a]))
            right.append(self.rng.choice(self.by_machine[b]))
            same.append(float(a == b))
        return torch.from_numpy(self.x[left]), torch.from_numpy(self.x[right]), torch.tensor(same)


class Encoder(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(1, 16, 9, padding=4),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(16, 32, 7, padding=3),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(4),
        )
        self.proj = nn.Linear(128, dim)

    def forward(self, x):
        return self.proj(self.conv(x.unsqueeze(1)).flatten(1))


def pair_distance(a, b):
    return torch.sqrt((a - b).pow(2).sum(dim=1) + EPS)


def contrastive(dist, same, margin=1.5):
    pull = same * dist
    push = (1 - same) * torch.relu(margin - dist).pow(2)
    return (pull + push).mean()


@torch.no_grad()
def pair_accuracy(enc, sampler, margin=1.5, rounds=6):
    hits = []
    for _ in range(rounds):
        a, b, same = sampler.draw()
        hits.append(((pair_distance(enc(a), enc(b)) < margin / 2).float() == same).float().mean().item())
    return float(np.mean(hits))


def main():
    torch.manual_seed(11)
    x, y = record_windows(np.random.default_rng(11))
    train = PairSampler(x, y, batch=64, seed=9)
    holdout = PairSampler(*record_windows(np.random.default_rng(12)), batch=128, seed=2)
    enc = Encoder()
    opt = torch.optim.Adam(enc.parameters(), lr=2e-3)
    history = []
    for step in range(400):
        a, b, same = train.draw()
        loss = contrastive(pair_distance(enc(a), enc(b)), same)
        opt.zero_grad()
        loss.backward()
        opt.step()
        history.append(loss.item())
        if (step + 1) % 20 == 0:
            print(f"[{step + 1:4d}] contrastive {np.mean(history[-20:]):.4f}")
    print(f"pair accuracy on hold-out machines' windows: {pair_accuracy(enc, holdout):.3f}")


if __name__ == "__main__":
    main()
