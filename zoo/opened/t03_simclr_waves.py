# expect: sick
# symptom: the contrastive task is solved to 100 % within the first epoch and the loss soon sits on a floor, while the nearest-neighbour accuracy of the features stays poor
# axis: data
# cause: the random generator of the augmentation is seeded by (epoch, sample) for both views, so the two views of a sample are identical and the positives are trivial
# says: ((two|both) (\w+ )?(views?|augmentations?|crops?|copies)|views?|positive pairs?|augment\w*).{0,120}(identical|same|equal|duplicate|bitwise|no difference|not differ|must differ|seed)|(identical|same|equal|duplicate).{0,60}(views?|augment|positives?|pairs?)
# onset_step: 0
# fix: give the view's number to the generator (or use one generator that runs on) so that the views differ
# mended: the view's number is part of the seed
"""Contrastive pretraining on short waveforms, judged by nearest neighbours."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
L, CLASSES = 96, 8


def drift(rng, n=1):
    t = np.linspace(0, 1, L)[None, :, None]
    f, ph = rng.uniform(0.3, 3.0, (n, 1, 4)), rng.uniform(0, 2 * np.pi, (n, 1, 4))
    return (rng.normal(0, 1.0, (n, 1, 4)) * np.sin(2 * np.pi * f * t + ph)).sum(-1)


def make_waves(n, seed):
    rng = np.random.default_rng(seed)
    bank = np.random.default_rng(99).normal(size=(CLASSES, L))
    y = rng.integers(0, CLASSES, n)
    x = 0.42 * bank[y] * rng.uniform(0.5, 1.5, (n, 1)) + drift(rng, n) + 0.6 * rng.normal(size=(n, L))
    return x.astype(np.float32), y


class TwoViews(Dataset):
    def __init__(self, x, seed=0):
        self.x, self.seed, self.epoch = x, seed, 0

    def __len__(self):
        return len(self.x)

    def augment(self, i, view):
        key = [self.seed, self.epoch, i]
        if MENDED:
            key.append(view)
        rng = np.random.default_rng(key)
        w = self.x[i] * rng.uniform(0.7, 1.3) + drift(rng)[0] + 0.2 * rng.normal(size=L)
        a = rng.integers(0, L - 16)
        w[a : a + 16] = 0.0
        return w.astype(np.float32)

    def __getitem__(self, i):
        return self.augment(i, 0), self.augment(i, 1)


class Encoder(nn.Module):
    def __init__(self, d=128):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(L, 256),
            nn.BatchNorm1d(256),
            nn.ReLU(),
            nn.Linear(256, 256),
            nn.BatchNorm1d(256),
            nn.ReLU(),
            nn.Linear(256, d),
        )
        self.proj = nn.Sequential(nn.ReLU(), nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 64))

    def forward(self, x):
        return self.proj(self.trunk(x))


def nt_xent(z1, z2, tau=0.2):
    n = len(z1)
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    sim = z @ z.T / tau
    keep = ~torch.eye(2 * n, dtype=torch.bool)
    sim = sim[keep].view(2 * n, 2 * n - 1)
    row = torch.arange(n)
    target = torch.cat([row + n - 1, row])
    return F.cross_entropy(sim, target), (sim.argmax(1) == target).float().mean()


@torch.no_grad()
def knn_accuracy(model, xa, ya, xb, yb):
    model.eval()
    a = F.normalize(model.trunk(xa), dim=1)
    b = F.normalize(model.trunk(xb), dim=1)
    model.train()
    near = (b @ a.T).topk(5, dim=1).indices
    return (ya[near].mode(dim=1).values == yb).float().mean().item()


def main():
    torch.manual_seed(2)
    x, y = make_waves(1536, 1)
    xt, yt = make_waves(512, 2)
    bank = [torch.from_numpy(v) for v in (x, y, xt, yt)]
    data = TwoViews(x)
    loader = DataLoader(data, batch_size=128, shuffle=True, drop_last=True)
    model = Encoder()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    print(f"before: knn {knn_accuracy(model, *bank):.3f}")
    for epoch in range(30):
        data.epoch = epoch
        total = acc = 0.0
        for v1, v2 in loader:
            loss, hit = nt_xent(model(v1), model(v2))
            opt.zero_grad()
            loss.backward()
            opt.step()
            total, acc = total + loss.item(), acc + hit.item()
        if epoch < 3 or epoch % 3 == 2:
            print(
                f"epoch {epoch:2d} loss {total / len(loader):.4f} match {acc / len(loader):.3f} knn {knn_accuracy(model, *bank):.3f}"
            )


if __name__ == "__main__":
    main()
