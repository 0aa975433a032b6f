# expect: sick
# symptom: each time new items join the catalogue the ranking loss jumps (expected), but from then on it no longer comes down and new items stay at chance
# axis: harness
# cause: When the catalogue grows, the item embeddings are replaced by new, larger tables, but the optimizer was built once and still holds the old parameters, so the new item tables are never updated.
# says: optimi[sz]er.*(old|stale|previous|original|not (contain|include|know|hold|updated|regist)|never|miss|without|before|add_param_group|rebuil|re-?creat|detached|no longer|orphan|once)|(embedding|table|parameter|weight).*(not|never|miss|absent|isn't|aren't|no longer).*(optimi[sz]er|param.?group)
# onset_step: 251
# fix: register the new tables with the optimizer after every growth (add_param_group)
# mended: yes
"""Streaming recommender: logistic matrix factorisation with a catalogue that grows.

Week by week new items go on sale; the model is warm-started, not retrained.
"""

import os
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn


@dataclass
class Config:
    users: int = 400
    items_per_week: tuple = (200, 150, 150)
    steps_per_week: int = 250
    dim: int = 24
    batch: int = 8192
    lr: float = 1e-2
    seed: int = 21
    mended: bool = os.environ.get("MENDED") == "1"


class World:
    """Ground truth: users and items have 6 hidden tastes; items have a popularity."""

    def __init__(self, cfg):
        self.rng = np.random.default_rng(cfg.seed)
        n = sum(cfg.items_per_week)
        self.u = self.rng.normal(size=(cfg.users, 6))
        self.v = self.rng.normal(size=(n, 6))
        self.pop = 0.5 * self.rng.normal(size=n)

    def interactions(self, n, lo, hi):
        users = self.rng.integers(0, len(self.u), n)
        items = self.rng.integers(lo, hi, n)
        logit = 1.2 * (self.u[users] * self.v[items]).sum(1) + self.pop[items]
        clicked = self.rng.random(n) < 1 / (1 + np.exp(-logit))
        return (torch.from_numpy(users), torch.from_numpy(items), torch.from_numpy(clicked.astype(np.float32)))

    def week(self, n, known, fresh):
        """Two thirds of the traffic goes to the newest items."""
        if known == 0:
            return self.interactions(n, 0, fresh)
        a = self.interactions(n // 3, 0, known)
        b = self.interactions(n - n // 3, known, known + fresh)
        return tuple(torch.cat(t) for t in zip(a, b))


class Factoriser(nn.Module):
    def __init__(self, users, items, dim):
        super().__init__()
        self.user = nn.Embedding(users, dim)
        self.item = nn.Embedding(items, dim)
        self.item_bias = nn.Embedding(items, 1)
        self.dim = dim
        for table in (self.user, self.item):
            nn.init.normal_(table.weight, std=0.1)
        nn.init.zeros_(self.item_bias.weight)

    @torch.no_grad()
    def grow(self, extra):
        old, old_bias = self.item.weight, self.item_bias.weight
        n = len(old)
        self.item = nn.Embedding(n + extra, self.dim)
        self.item_bias = nn.Embedding(n + extra, 1)
        nn.init.normal_(self.item.weight, std=0.1)
        nn.init.zeros_(self.item_bias.weight)
        self.item.weight[:n] = old
        self.item_bias.weight[:n] = old_bias

    def forward(self, u, i):
        return (self.user(u) * self.item(i)).sum(-1) + self.item_bias(i).squeeze(-1)


def auc(score, label):
    order = score.argsort()
    rank = torch.empty(len(score))
    rank[order] = torch.arange(1, len(score) + 1).float()
    pos = label.sum()
    return ((rank[label > 0].sum() - pos * (pos + 1) / 2) / (pos * (len(label) - pos))).item()


def evaluate(model, world, known, fresh):
    with torch.no_grad():
        out = []
        for lo, hi in ((0, known), (known, known + fresh)):
            if hi > lo:
                u, i, y = world.interactions(5000, lo, hi)
                out.append(auc(model(u, i), y))
        return out


def main(cfg):
    torch.set_num_threads(1)
    torch.manual_seed(cfg.seed)
    world = World(cfg)
    model = Factoriser(cfg.users, cfg.items_per_week[0], cfg.dim)
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    bce = nn.BCEWithLogitsLoss()
    known, step, smooth = 0, 0, None
    for week, fresh in enumerate(cfg.items_per_week):
        if week > 0:
            model.grow(fresh)
            if cfg.mended:
                opt.add_param_group({"params": [model.item.weight, model.item_bias.weight]})
        for _ in range(cfg.steps_per_week):
            step += 1
            u, i, y = world.week(cfg.batch, known, fresh)
            reg = 0.01 * (model.user(u).pow(2).mean() + model.item(i).pow(2).mean())
            loss = bce(model(u, i), y)
            model.zero_grad()
            (loss + reg).backward()
            opt.step()
            smooth = loss.item() if smooth is None else 0.9 * smooth + 0.1 * loss.item()
            if step % 25 == 0:
                print(f"week {week} step {step:4d} logloss {smooth:.4f}")
        scores = " / ".join(f"{s:.3f}" for s in evaluate(model, world, known, fresh))
        print(f"== end of week {week}: AUC (older / newest items) {scores}")
        known += fresh


if __name__ == "__main__":
    main(Config())
