# expect: sick
# symptom: loss falls within the first log file but jumps up at the start of every next file; holdout AUC near 0.5 although nothing explodes
# axis: data
# cause: the categorical ids are factorized anew for each chunk, so the same integer code means a different category in each chunk and the embeddings learned on one chunk are wrong for the next and for the holdout
# says: factori[sz]|(categor|\bcodes?\b|\bids?\b|indices|index|integers?).{0,80}(chang\w* meaning|meanings? .{0,20}(chang|differ)|not (stable|fixed))|(re-?fit|re-?built|re-?comput|re-?creat|re-?generat|re-?map|re-?encod|re-?number|separate|independent|per[- ](chunk|file|part|day|batch|shard)|each (chunk|file|part|day|shard)|every (chunk|file|part|day|shard)|inconsisten|not shared|not consistent|differ|across (chunks|files|parts|days|shards)|between (chunks|files|parts|days|shards)).{0,140}(categor|\bcodes?\b|\bids?\b|encod|vocab|mapping|label ?encoder|embedding)|(categor|\bcodes?\b|\bids?\b|encod|vocab|mapping|embedding).{0,140}(re-?fit|rebuilt|recomputed|separately|independently|per[- ](chunk|file|part|day|shard)|each (chunk|file|part|day|shard)|every (chunk|file|part|day|shard)|inconsisten|not shared|across (chunks|files|parts|days|shards)|different (meaning|categor|item|entit))
# onset_step: 101
# fix: keep one category-to-code mapping for all chunks
# mended: yes
"""Click-through model trained on a stream of daily log files (pandas -> torch)."""

import os

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
torch.manual_seed(3)

CATS = {"advertiser": 260, "site": 180, "region": 40, "device": 9}
NUMS = ["hour", "bid", "banner_area"]
ROWS_PER_DAY = 25600
BATCH = 256
DAYS = 6

world = np.random.default_rng(2024)
EFFECT = {c: world.normal(scale=s, size=n) for (c, n), s in zip(CATS.items(), [1.3, 1.1, 0.5, 0.5])}
POP = {c: world.dirichlet(np.full(n, 2.0)) for c, n in CATS.items()}


def simulate_day(day):
    g = np.random.default_rng(500 + day)
    frame, logit = {}, np.full(ROWS_PER_DAY, -0.9)
    for c, n in CATS.items():
        idx = g.choice(n, size=ROWS_PER_DAY, p=POP[c])
        frame[c] = np.array([f"{c[:3]}_{i:04d}" for i in range(n)])[idx]
        logit += EFFECT[c][idx]
    frame["hour"] = g.integers(0, 24, ROWS_PER_DAY)
    frame["bid"] = g.lognormal(0.0, 0.6, ROWS_PER_DAY)
    frame["banner_area"] = g.choice([0.3, 0.6, 1.2, 2.4], ROWS_PER_DAY)
    logit += 0.3 * np.sin(frame["hour"] / 24 * 2 * np.pi) + 0.25 * (frame["banner_area"] - 1)
    frame["click"] = (g.random(ROWS_PER_DAY) < 1 / (1 + np.exp(-logit))).astype("float32")
    return pd.DataFrame(frame)


class LogReader:
    def __init__(self):
        self.vocab = {c: {} for c in CATS}
        self.keep_vocab = os.environ.get("MENDED") == "1"

    def encode(self, column):
        if self.keep_vocab:
            table = self.vocab[column.name]
            for value in column.unique():
                table.setdefault(value, len(table))
            return column.map(table).to_numpy()
        codes, _ = pd.factorize(column)
        return codes

    def tensors(self, df):
        cats = np.stack([self.encode(df[c]) for c in CATS], axis=1)
        nums = df[NUMS].to_numpy("float32").copy()
        nums[:, 0] = nums[:, 0] / 12.0 - 1.0
        nums[:, 1] = np.log(nums[:, 1])
        nums[:, 2] -= 1.0
        return (
            torch.as_tensor(cats, dtype=torch.long),
            torch.from_numpy(nums),
            torch.from_numpy(df["click"].to_numpy()),
        )


class WideAndDeep(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.deep_tables = nn.ModuleList(nn.Embedding(n, dim) for n in CATS.values())
        self.wide_tables = nn.ModuleList(nn.Embedding(n, 1) for n in CATS.values())
        for t in self.wide_tables:
            nn.init.zeros_(t.weight)
        for t in self.deep_tables:
            nn.init.normal_(t.weight, std=0.1)
        self.mlp = nn.Sequential(
            nn.Linear(dim * len(CATS) + len(NUMS), 192),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(192, 96),
            nn.ReLU(),
            nn.Linear(96, 1),
        )

    def forward(self, cats, nums):
        deep = [t(cats[:, i]) for i, t in enumerate(self.deep_tables)]
        wide = sum(t(cats[:, i]) for i, t in enumerate(self.wide_tables))
        return (self.mlp(torch.cat(deep + [nums], 1)) + wide).squeeze(1)


def auc(score, label):
    rank = pd.Series(score).rank().to_numpy()
    pos = label.sum()
    return (rank[label == 1].sum() - pos * (pos + 1) / 2) / (pos * (len(label) - pos))


def evaluate(net, data):
    net.eval()
    with torch.no_grad():
        out = net(data[0], data[1])
        ll = F.binary_cross_entropy_with_logits(out, data[2]).item()
    net.train()
    return ll, auc(out.numpy(), data[2].numpy())


def main():
    reader = LogReader()
    net = WideAndDeep()
    opt = torch.optim.Adam(net.parameters(), lr=4e-3)
    step = 0
    for day in range(DAYS):
        cats, nums, clicks = reader.tensors(simulate_day(day))
        perm = torch.randperm(len(clicks))
        running = []
        for i in range(0, len(perm), BATCH):
            b = perm[i : i + BATCH]
            loss = F.binary_cross_entropy_with_logits(net(cats[b], nums[b]), clicks[b])
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            step += 1
            running.append(loss.item())
            if step % 20 == 0:
                print(f"day {day} step {step:4d} logloss {np.mean(running[-20:]):.4f}")
    holdout = reader.tensors(simulate_day(99))
    ll, area = evaluate(net, holdout)
    print(f"holdout logloss {ll:.4f} auc {area:.4f}")


if __name__ == "__main__":
    main()
