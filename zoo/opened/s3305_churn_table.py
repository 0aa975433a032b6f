# expect: sick
# symptom: huge losses at the start, then spikes and oscillation; the accuracy stays near the base rate
# axis: data
# cause: one numeric column (credit_limit, around 10^4) is fed raw, without the scaling of the others
# says: (\bun|not |n.t |without |never |miss\w+ |lack\w* ).{0,30}(scal|normali|standardi)|\braw\b|input.*scale
# onset_step: 0
# fix: put the credit limit into the list of standardised columns
# mended: the script applies that change if the environment has MENDED=1
"""Churn model on customer records: embeddings for the categories, an MLP on top."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

NUMERIC = ["age", "tenure_months", "calls_90d", "avg_ticket", "credit_limit"]
CATEGORICAL = {"plan": 4, "region": 9}
STANDARDISE = ["age", "tenure_months", "calls_90d", "avg_ticket"] + (["credit_limit"] if MENDED else [])


def customers(n, seed):
    rng = np.random.default_rng(seed)
    t = {
        "age": rng.normal(44, 13, n).clip(18, 90),
        "tenure_months": rng.gamma(2.0, 14.0, n),
        "calls_90d": rng.poisson(2.2, n).astype(float),
        "avg_ticket": rng.lognormal(3.2, 0.5, n),
        "credit_limit": rng.lognormal(9.3, 0.8, n),
        "plan": rng.integers(0, 4, n),
        "region": rng.integers(0, 9, n),
    }
    plan_effect = np.array([0.9, 0.2, -0.5, -1.0])
    region_effect = np.linspace(-0.6, 0.6, 9)
    z = 0.9 * (t["calls_90d"] - 2.2) - 0.05 * (t["tenure_months"] - 28) - 0.03 * (t["age"] - 44)
    z += 1.6 * plan_effect[t["plan"]] + region_effect[t["region"]] - 0.9 * (np.log(t["credit_limit"]) - 9.3)
    z += 0.6 * np.sin(t["avg_ticket"] / 6.0) - 0.4
    t["churned"] = (rng.random(n) < 1 / (1 + np.exp(-1.5 * z))).astype(np.float32)
    return t


class Preprocessor:
    def fit(self, table):
        self.stats = {c: (table[c].mean(), table[c].std()) for c in STANDARDISE}
        return self

    def transform(self, table):
        cols = []
        for c in NUMERIC:
            v = table[c]
            if c in self.stats:
                v = (v - self.stats[c][0]) / self.stats[c][1]
            cols.append(v)
        num = torch.tensor(np.stack(cols, 1), dtype=torch.float32)
        cat = torch.tensor(np.stack([table[c] for c in CATEGORICAL], 1))
        return num, cat, torch.tensor(table["churned"])


class ChurnNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embs = nn.ModuleList(nn.Embedding(k, 6) for k in CATEGORICAL.values())
        self.fc1 = nn.Linear(len(NUMERIC) + 6 * len(CATEGORICAL), width)
        self.fc2 = nn.Linear(width, width)
        self.out = nn.Linear(width, 1)

    def forward(self, num, cat):
        h = torch.cat([num] + [e(cat[:, i]) for i, e in enumerate(self.embs)], dim=1)
        h = F.relu(self.fc1(h))
        h = F.relu(self.fc2(h))
        return self.out(h).squeeze(1)


def auc(score, label):
    order = score.argsort()
    rank = torch.empty_like(score)
    rank[order] = torch.arange(1, len(score) + 1, dtype=score.dtype)
    pos = label.sum()
    return ((rank[label > 0].sum() - pos * (pos + 1) / 2) / (pos * (len(label) - pos))).item()


def main():
    torch.manual_seed(8)
    train_raw, test_raw = customers(6000, 1), customers(2000, 2)
    prep = Preprocessor().fit(train_raw)
    num, cat, y = prep.transform(train_raw)
    tnum, tcat, ty = prep.transform(test_raw)
    net = ChurnNet()
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    g = torch.Generator().manual_seed(0)
    step = 0
    for epoch in range(8):
        for idx in torch.randperm(len(y), generator=g).split(128):
            loss = F.binary_cross_entropy_with_logits(net(num[idx], cat[idx]), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 20 == 0:
                print(f"step {step:4d}  bce {loss.item():.4f}")
            step += 1
        with torch.no_grad():
            s = net(tnum, tcat)
            test = F.binary_cross_entropy_with_logits(s, ty).item()
        acc = ((s > 0).float() == ty).float().mean().item()
        print(
            f"epoch {epoch}  test bce {test:.4f}  acc {acc:.3f}  auc {auc(s.double(), ty):.3f}  base {1 - ty.mean():.3f}"
        )


if __name__ == "__main__":
    main()
