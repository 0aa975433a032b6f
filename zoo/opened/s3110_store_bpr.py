# expect: sick
# symptom: the pairwise loss falls nicely to almost nothing, but recall over the whole catalogue stays poor
# axis: data
# cause: the generator of the negatives is seeded anew in each batch, so every batch draws the same negative items
# says: negativ.*(same|seed|repeat|identical|fixed|never (vary|chang))|same.*negativ|seed.*batch|batch.*reseed
# onset_step: 1
# fix: create the generator of the negative sampler once, not per batch
# mended: the script applies that change if the environment has MENDED=1
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
USERS, ITEMS, TASTES = 500, 1600, 10
SEED = 21


def purchases(seed=SEED, per_user=30):
    """Each user likes two tastes; each item belongs to one and has its own appeal."""
    rng = np.random.default_rng(seed)
    item_taste = rng.integers(0, TASTES, ITEMS)
    appeal = rng.gamma(1.5, 1.0, ITEMS) + 0.1
    train, test = [], []
    for u in range(USERS):
        likes = rng.choice(TASTES, 2, replace=False)
        w = appeal * (np.isin(item_taste, likes) * 1.0 + 0.01)
        picked = rng.choice(ITEMS, per_user, replace=False, p=w / w.sum())
        train += [(u, int(i)) for i in picked[:-5]]
        test.append(picked[-5:].tolist())
    return train, test


class Purchases(Dataset):
    def __init__(self, pairs):
        self.pairs = torch.tensor(pairs)

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        return self.pairs[i]


class Collate:
    """Puts sampled items the user did not buy next to every purchase."""

    def __init__(self, bought, negatives=1, seed=SEED):
        self.bought, self.k, self.seed = bought, negatives, seed
        self.gen = torch.Generator().manual_seed(seed)

    def __call__(self, rows):
        pairs = torch.stack(rows)
        gen = self.gen if MENDED else torch.Generator().manual_seed(self.seed)
        neg = torch.randint(0, ITEMS, (len(pairs), self.k), generator=gen)
        clash = self.bought[pairs[:, :1], neg]
        neg = torch.where(clash, torch.randint(0, ITEMS, neg.shape, generator=gen), neg)
        return pairs[:, 0], pairs[:, 1], neg


class TwoTower(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.user = nn.Embedding(USERS, dim)
        self.item = nn.Embedding(ITEMS, dim)
        self.bias = nn.Embedding(ITEMS, 1)
        nn.init.normal_(self.user.weight, std=0.1)
        nn.init.normal_(self.item.weight, std=0.1)
        nn.init.zeros_(self.bias.weight)

    def forward(self, u, i):
        return (self.user(u) * self.item(i)).sum(-1) + self.bias(i).squeeze(-1)

    def all_scores(self):
        return self.user.weight @ self.item.weight.t() + self.bias.weight.t()


@torch.no_grad()
def recall_at(model, bought, test, k=50):
    scores = model.all_scores().masked_fill(bought, float("-inf"))
    top = scores.topk(k, dim=1).indices
    hits = sum(len(set(t.tolist()) & set(want)) for t, want in zip(top, test))
    return hits / sum(len(w) for w in test)


def main():
    torch.manual_seed(SEED)
    train, test = purchases()
    bought = torch.zeros(USERS, ITEMS, dtype=torch.bool)
    rows = torch.tensor(train)
    bought[rows[:, 0], rows[:, 1]] = True
    loader = DataLoader(
        Purchases(train),
        batch_size=250,
        shuffle=True,
        drop_last=True,
        collate_fn=Collate(bought),
        generator=torch.Generator().manual_seed(2),
    )
    model = TwoTower()
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    step = 0
    print(f"recall@50 before training {recall_at(model, bought, test):.4f}")
    for epoch in range(10):
        for u, pos, neg in loader:
            margin = model(u, pos)[:, None] - model(u[:, None], neg)
            reg = model.user(u).pow(2).sum(-1).mean() + model.item(pos).pow(2).sum(-1).mean()
            loss = F.softplus(-margin).mean() + 2e-3 * reg
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 40 == 0:
                print(f"epoch {epoch} step {step:4d} loss {loss.item():.4f}")
            step += 1
    print(f"final loss {loss.item():.4f}  recall@50 {recall_at(model, bought, test):.4f}  steps {step}")


if __name__ == "__main__":
    main()
