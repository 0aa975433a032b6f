# expect: sick
# symptom: the contrastive loss falls very quickly and very low, but the linear probe on the features gets worse than at random initialisation (near chance)
# axis: data
# cause: both views of a sample are the same: the augmentation draws from a generator seeded by (seed, epoch, index) only, so the second call repeats the first one and the positive pair is identical
# says: (view|augment|crop|positive).{0,80}(identical|same|equal|duplicat|repeat|not (differ|independent|random)|trivial|no differ)|(identical|same|equal|duplicate).{0,40}(view|augment|crop|positive|seed|random|rng)|(seed|rng|generator).{0,60}(index|idx|per.?sample|view|repeat|reset|each call|every call|again)
# onset_step: 0
# fix: draw the two views from different random streams (seed also by view number, or one generator for both calls)
# mended: the number of the view is a part of the seed, so that the two views differ
"""SimCLR on six-channel motion sensor windows, checked by a linear probe."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(13)

CH, WIN, LONG, CLASSES = 6, 64, 128, 8


def record(n, seed):
    g = np.random.default_rng(4)
    freq = g.uniform(2, 9, (CLASSES, 2))
    mix = g.normal(0, 1, (CLASSES, 2, CH))
    r = np.random.default_rng(seed)
    y = r.integers(0, CLASSES, n)
    t = np.linspace(0, 2, LONG)
    x = np.zeros((n, CH, LONG))
    for i in range(n):
        for k in range(2):
            x[i] += mix[y[i], k][:, None] * np.sin(2 * np.pi * freq[y[i], k] * t + r.uniform(0, 6.28))
        x[i] *= np.exp(r.normal(0, 0.6))
        x[i] += r.normal(0, 1.5, (CH, 1)) + 0.5 * r.normal(0, 1, (CH, LONG))
    return x.astype(np.float32), y


class TwoViews(Dataset):
    """Reproducible augmentation: what a sample looks like depends on seed and epoch, not on the worker."""

    def __init__(self, x, seed=0):
        self.x, self.seed, self.epoch = x, seed, 0

    def __len__(self):
        return len(self.x)

    def augment(self, i, view):
        key = (self.seed, self.epoch, i, view) if MENDED else (self.seed, self.epoch, i)
        r = np.random.default_rng(key)
        s = r.integers(0, LONG - WIN + 1)
        x = self.x[i][:, s : s + WIN] * np.exp(r.normal(0, 0.5))
        x = x + r.normal(0, 1.0, (CH, 1))
        x = x + r.normal(0, 0.3, x.shape)
        if r.random() < 0.3:
            x[r.integers(CH)] = 0
        return x.astype(np.float32)

    def __getitem__(self, i):
        return self.augment(i, 0), self.augment(i, 1)


class ConvEncoder(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(CH, width, 7, stride=2, padding=3),
            nn.GELU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2),
            nn.GroupNorm(4, width),
            nn.GELU(),
            nn.Conv1d(width, width, 3, padding=1),
            nn.GELU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
        )
        self.proj = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 32))

    def forward(self, x):
        return F.normalize(self.proj(self.net(x)), dim=1)


def nt_xent(a, b, tau=0.2):
    z = torch.cat([a, b])
    sim = z @ z.T / tau
    sim.fill_diagonal_(-1e9)
    n = len(a)
    target = torch.cat([torch.arange(n, 2 * n), torch.arange(n)])
    return F.cross_entropy(sim, target)


def linear_probe(enc, xtr, ytr, xte, yte):
    enc.eval()
    with torch.no_grad():
        f, g = enc.net(torch.tensor(xtr[:, :, :WIN])), enc.net(torch.tensor(xte[:, :, :WIN]))
    enc.train()
    m, s = f.mean(0), f.std(0) + 1e-5
    f, g = (f - m) / s, (g - m) / s
    onehot = F.one_hot(torch.tensor(ytr), CLASSES).float()
    f1 = torch.cat([f, torch.ones(len(f), 1)], 1)
    w = torch.linalg.solve(f1.T @ f1 + 1.0 * torch.eye(f1.size(1)), f1.T @ onehot)
    pred = (torch.cat([g, torch.ones(len(g), 1)], 1) @ w).argmax(1)
    return (pred == torch.tensor(yte)).float().mean().item()


x, y = record(1600, 1)
xt, yt = record(800, 2)
few = np.arange(160)
data = TwoViews(x, seed=42)
loader = DataLoader(data, batch_size=80, shuffle=True, drop_last=True)
enc = ConvEncoder()
opt = torch.optim.AdamW(enc.parameters(), lr=2e-3, weight_decay=1e-4)
EPOCHS, step = 20, 0
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, EPOCHS * len(loader))
print(f"probe at random init {linear_probe(enc, x[few], y[few], xt, yt):.3f}")
for epoch in range(EPOCHS):
    data.epoch = epoch
    for a, b in loader:
        loss = nt_xent(enc(a), enc(b))
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step:3d} loss {loss.item():.4f}")
        step += 1
    if epoch % 5 == 4:
        print(f"epoch {epoch} probe accuracy {linear_probe(enc, x[few], y[few], xt, yt):.3f}")
