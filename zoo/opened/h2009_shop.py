# expect: healthy
# symptom: the training loss rises during the run and jumps upwards several times; two optimizers, sparse gradients, most rows untouched
# axis: none
# mended: none

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(13)
torch.set_num_threads(1)
rng = np.random.default_rng(13)

USERS, ITEMS, DIM = 800, 1200, 32


def interactions():
    zu, zi = rng.normal(size=(USERS, 6)), rng.normal(size=(ITEMS, 6))
    popular = rng.gumbel(size=ITEMS)
    score = 1.6 * zu @ zi.T + popular[None] + rng.gumbel(size=(USERS, ITEMS))
    liked = np.argsort(-score, axis=1)[:, :30]
    for row in liked:
        rng.shuffle(row)
    return liked[:, :24], liked[:, 24:]


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(USERS, DIM, sparse=True)
        self.item = nn.Embedding(ITEMS, DIM, sparse=True)
        self.bias = nn.Embedding(ITEMS, 1, sparse=True)
        self.scale = nn.Parameter(torch.ones(DIM))
        nn.init.normal_(self.user.weight, std=0.1)
        nn.init.normal_(self.item.weight, std=0.1)
        nn.init.zeros_(self.bias.weight)

    def forward(self, u, i):
        return (self.user(u).unsqueeze(1) * self.scale * self.item(i)).sum(-1) + self.bias(i).squeeze(-1)

    @torch.no_grad()
    def all_scores(self):
        return (self.user.weight * self.scale) @ self.item.weight.T + self.bias.weight.T


class NegativeSampler:
    """Curriculum: draws `pool` candidates per positive and keeps the hardest one."""

    schedule = {0: 1, 200: 4, 350: 8, 500: 16}

    def __init__(self, train):
        self.seen = torch.zeros(USERS, ITEMS, dtype=torch.bool)
        self.seen.scatter_(1, torch.from_numpy(train), True)
        self.pool = 1

    def at(self, step):
        self.pool = self.schedule.get(step, self.pool)

    @torch.no_grad()
    def __call__(self, model, u):
        cand = torch.randint(0, ITEMS, (len(u), self.pool))
        score = model(u, cand).masked_fill(self.seen[u].gather(1, cand), -1e9)
        return cand.gather(1, score.argmax(1, keepdim=True))


def recall_at(model, sampler, test, k=20):
    scores = model.all_scores().masked_fill(sampler.seen, float("-inf"))
    top = scores.topk(k, dim=1).indices
    hit = torch.zeros(USERS, ITEMS, dtype=torch.bool).scatter_(1, top, True)
    return hit.gather(1, torch.from_numpy(test)).float().mean().item()


def train(steps=650, batch=1024):
    tr, te = interactions()
    pairs = torch.tensor([(u, i) for u in range(USERS) for i in tr[u]])
    model, sampler = TwoTower(), NegativeSampler(tr)
    tables = [model.user.weight, model.item.weight, model.bias.weight]
    opt_sparse = torch.optim.SparseAdam(tables, lr=1e-2)
    opt_dense = torch.optim.SGD([model.scale], lr=1e-2)
    print(f"recall@20 untrained {recall_at(model, sampler, te):.3f}")
    for step in range(steps):
        sampler.at(step)
        if step == 500:
            for g in opt_sparse.param_groups:
                g["lr"] = 3e-3
        b = pairs[torch.randint(0, len(pairs), (batch,))]
        u, pos = b[:, 0], b[:, 1:]
        neg = sampler(model, u)
        margin = model(u, pos) - model(u, neg)
        known = sampler.seen[u].gather(1, neg)
        bpr = (F.softplus(-margin) * ~known).sum() / (~known).sum()
        reg = 2e-3 * (model.user(u).pow(2).sum() + model.item(pos).pow(2).sum() + model.item(neg).pow(2).sum()) / batch
        loss = bpr + reg
        opt_sparse.zero_grad()
        opt_dense.zero_grad()
        loss.backward()
        opt_sparse.step()
        opt_dense.step()
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f} bpr {bpr.item():.4f} pool {sampler.pool}")
        if (step + 1) % 100 == 0:
            print(f"   recall@20 {recall_at(model, sampler, te):.3f}")


if __name__ == "__main__":
    train()
