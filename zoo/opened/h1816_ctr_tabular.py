# expect: healthy
# symptom: sum instead of mean in the loss, two optimizers each for a part of the parameters, gradients cleared right after the step and divided by hand, schedule stepped per update
# axis: none
# mended: none
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(16)

CARD = (400, 60, 30, 12)
N_NUM, MICRO, ACCUM, EPOCHS = 6, 96, 4, 6
world = np.random.default_rng(1)
EFFECT = [world.normal(0, 0.9, c) for c in CARD]
CROSS = world.normal(0, 0.8, (CARD[2], CARD[3]))
W_NUM = world.normal(0, 0.6, N_NUM)


def clicks(n, seed):
    """Click log: four categorical columns with a long tail, six numeric ones, 10 % of rows unusable."""
    rng = np.random.default_rng(seed)
    cat = np.stack([np.minimum(rng.zipf(1.4, n) - 1, c - 1) if c > 100 else rng.integers(0, c, n) for c in CARD], 1)
    num = rng.normal(0, 1, (n, N_NUM))
    logit = sum(e[cat[:, k]] for k, e in enumerate(EFFECT)) + CROSS[cat[:, 2], cat[:, 3]]
    logit = logit + num @ W_NUM + 0.8 * np.sin(2 * num[:, 0]) - 1.0
    y = (rng.random(n) < 1 / (1 + np.exp(-logit))).astype(np.float32)
    use = (rng.random(n) < 0.9).astype(np.float32)
    return (
        torch.from_numpy(cat),
        torch.from_numpy(np.exp(num * 0.8).astype(np.float32)),
        torch.from_numpy(y),
        torch.from_numpy(use),
    )


class WideDeep(nn.Module):
    def __init__(self, dim=12, hidden=96):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(c, dim, sparse=True) for c in CARD)
        self.wide = nn.ModuleList(nn.Embedding(c, 1, sparse=True) for c in CARD)
        for e in [*self.tables, *self.wide]:
            nn.init.normal_(e.weight, std=0.02)
        self.deep = nn.Sequential(
            nn.Linear(dim * len(CARD) + N_NUM, hidden),
            nn.ReLU(),
            nn.LayerNorm(hidden),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 1),
        )

    def forward(self, cat, num):
        e = [t(cat[:, k]) for k, t in enumerate(self.tables)]
        w = sum(t(cat[:, k]) for k, t in enumerate(self.wide))
        return (self.deep(torch.cat([*e, num], 1)) + w).squeeze(1)

    def sparse_parameters(self):
        return [*self.tables.parameters(), *self.wide.parameters()]


def auc(score, y):
    rank = torch.empty(len(score))
    rank[score.argsort()] = torch.arange(1, len(score) + 1, dtype=torch.float32)
    pos = y.sum()
    return ((rank[y == 1].sum() - pos * (pos + 1) / 2) / (pos * (len(y) - pos))).item()


def main():
    cat, num, y, use = clicks(16000, 2)
    vcat, vnum, vy, _ = clicks(4000, 3)
    num, vnum = num.log1p(), vnum.log1p()
    mu, sd = num.mean(0), num.std(0)
    num, vnum = (num - mu) / sd, (vnum - mu) / sd

    model = WideDeep()
    dense = torch.optim.AdamW(model.deep.parameters(), lr=2e-3, weight_decay=1e-3)
    sparse = torch.optim.SparseAdam(model.sparse_parameters(), lr=5e-3)
    updates = EPOCHS * -(-len(y) // (MICRO * ACCUM))
    sched = torch.optim.lr_scheduler.OneCycleLR(dense, max_lr=2e-3, total_steps=updates, pct_start=0.2)
    step, t0 = 0, time.time()
    for epoch in range(EPOCHS):
        micro = torch.randperm(len(y)).split(MICRO)
        for start in range(0, len(micro), ACCUM):
            total, count = 0.0, 0.0
            for idx in micro[start : start + ACCUM]:
                per_row = F.binary_cross_entropy_with_logits(model(cat[idx], num[idx]), y[idx], reduction="none")
                loss = (per_row * use[idx]).sum()
                loss.backward()
                total += loss.item()
                count += use[idx].sum().item()
            for p in model.parameters():
                p.grad = p.grad / count
            nn.utils.clip_grad_norm_(model.deep.parameters(), 1.0)
            dense.step()
            sparse.step()
            sched.step()
            dense.zero_grad()
            sparse.zero_grad()
            if step % 20 == 0:
                print(f"step {step:4d} loss {total:.2f} per row {total / count:.4f} ({time.time() - t0:.1f}s)")
            step += 1
        with torch.no_grad():
            out = model(vcat, vnum)
        print(
            f"== epoch {epoch} valid logloss {F.binary_cross_entropy_with_logits(out, vy).item():.4f} "
            f"auc {auc(out, vy):.4f}"
        )


if __name__ == "__main__":
    main()
