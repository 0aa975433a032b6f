# expect: sick
# symptom: the first loss is finite, from the second step on the triplet loss is nan and rank-1 stays at chance
# axis: loss
# cause: euclidean distance uses sqrt of a squared distance that is exactly 0 on the diagonal (a sample against itself); the gradient of sqrt at 0 is inf and times the zero upstream gradient gives NaN in all weights
# says: sqrt|square root|zero distance|distance (of|is) (exactly )?(0|zero)|diagonal|cdist|pairwise dist|norm (at|of) (0|zero)
# onset_step: 1
# fix: add an eps / clamp(min=1e-12) before the sqrt
# mended: a small eps under the square root
import os
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


@dataclass
class Config:
    n_ids: int = 60
    per_id: int = 16
    p: int = 8
    k: int = 4
    dim: int = 48
    margin: float = 0.3
    lr: float = 5e-4
    steps: int = 250
    seed: int = 11


class PersonCrops(Dataset):
    """Synthetic re-identification crops: every identity has its own clothes pattern."""

    def __init__(self, cfg, split):
        g = torch.Generator().manual_seed(cfg.seed + (0 if split == "train" else 999))
        pattern = torch.rand(cfg.n_ids, 3, 6, 3, generator=g)
        pattern = F.interpolate(pattern, size=(32, 16), mode="bilinear", align_corners=False)
        xs, ys = [], []
        for i in range(cfg.n_ids):
            for _ in range(cfg.per_id):
                img = pattern[i]
                shift = int(torch.randint(-3, 4, (1,), generator=g))
                img = torch.roll(img, shift, dims=1)
                light = 0.7 + 0.6 * torch.rand(1, generator=g)
                xs.append(img * light + 0.08 * torch.randn(img.shape, generator=g))
                ys.append(i)
        self.x, self.y = torch.stack(xs), torch.tensor(ys)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class PKSampler(Sampler):
    def __init__(self, labels, p, k, steps, seed):
        self.labels, self.p, self.k, self.steps = labels.numpy(), p, k, steps
        self.rng = np.random.default_rng(seed)

    def __iter__(self):
        for _ in range(self.steps):
            ids = self.rng.choice(np.unique(self.labels), self.p, replace=False)
            yield [int(j) for i in ids for j in self.rng.choice(np.where(self.labels == i)[0], self.k, replace=False)]

    def __len__(self):
        return self.steps


class EmbedNet(nn.Module):
    def __init__(self, dim):
        super().__init__()

        def block(a, b):
            return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2))

        self.body = nn.Sequential(block(3, 24), block(24, 48), block(48, 64))
        self.fc = nn.Linear(64 * 4 * 2, dim)

    def forward(self, x):
        return self.fc(self.body(x).flatten(1))


class BatchHardTriplet(nn.Module):
    def __init__(self, margin, eps=0.0):
        super().__init__()
        self.margin, self.eps = margin, eps

    def distances(self, a, b):
        d2 = (a[:, None] - b[None]).pow(2).sum(-1)
        return (d2 + self.eps).sqrt()

    def forward(self, emb, y):
        d = self.distances(emb, emb)
        same = y[:, None] == y[None]
        hardest_pos = (d * same).max(1).values
        hardest_neg = (d + 1e4 * same).min(1).values
        return F.softplus(hardest_pos - hardest_neg + self.margin).mean()


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.train_set, self.test_set = PersonCrops(cfg, "train"), PersonCrops(cfg, "test")
        sampler = PKSampler(self.train_set.y, cfg.p, cfg.k, cfg.steps, cfg.seed)
        self.loader = DataLoader(self.train_set, batch_sampler=sampler)
        self.model = EmbedNet(cfg.dim)
        self.criterion = BatchHardTriplet(cfg.margin, eps=1e-12 if MENDED else 0.0)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=cfg.lr)

    def fit(self):
        self.model.train()
        for step, (x, y) in enumerate(self.loader):
            loss = self.criterion(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if step < 5 or step % 25 == 0:
                print(f"step {step:4d} loss {loss.item():.4f}", flush=True)
            if step % 100 == 99:
                print(f"step {step:4d} rank1 {self.rank1():.3f}", flush=True)

    @torch.no_grad()
    def rank1(self):
        self.model.eval()
        e = self.model(self.test_set.x)
        d = torch.cdist(e, e)
        d.fill_diagonal_(float("inf"))
        self.model.train()
        return (self.test_set.y[d.argmin(1)] == self.test_set.y).float().mean().item()


if __name__ == "__main__":
    cfg = Config()
    torch.manual_seed(cfg.seed)
    t = Trainer(cfg)
    t.fit()
    print(f"final rank1 {t.rank1():.3f}")
