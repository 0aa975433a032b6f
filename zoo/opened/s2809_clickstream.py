# expect: sick
# symptom: log loss and AUC improve in the first (large) file and then fall back / stagnate once the daily files start; each new file begins with a jump
# axis: data
# cause: the categorical columns are factorized separately in every file, so integer codes are handed out in order of first appearance and the same code stands for another category in each daily file; the embeddings learned earlier mean nothing there
# says: (factori[sz]|encod|\bcod(e|es|ing)\b|categor|\bids?\b|vocab|mapping|\bind(ex|ices)\b|embedding).{0,160}((per|each|every|one|single)[- ](\w+ )?(file|day|chunk|export|frame|dataframe|call)|separate|own (code|vocab|map|id)|differ|inconsisten|independent|anew|afresh|re-?(built|fit|map|number|assign|factor|encod|shuffl)|not (shared|kept|stable|consistent)|across (file|day|chunk)|between (file|day|chunk)|first appearance|order of appearance)|((per|each|every|one|single)[- ](\w+ )?(file|day|chunk|export|frame|dataframe|call)|separate|own (code|vocab|map|id)|differ|inconsisten|independent|anew|afresh|re-?(built|fit|map|number|assign|factor|encod|shuffl)|not (shared|kept|stable|consistent)|across (file|day|chunk)|between (file|day|chunk)|first appearance|order of appearance).{0,160}(factori[sz]|encod|\bcod(e|es|ing)\b|categor|\bids?\b|vocab|mapping|\bind(ex|ices)\b|embedding)
# onset_step: 141
# fix: keep one vocabulary per column over all files
# mended: yes
"""CTR model on the click stream: one backfill file, then the daily exports, in time order."""

import os

import numpy as np
import pandas as pd
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(0)

CATS = {"publisher": 300, "campaign": 220, "device": 60, "city": 180}
NUMS = ["hour_sin", "hour_cos", "recency", "depth"]
BATCH = 256
MENDED = os.environ.get("MENDED") == "1"

world = np.random.default_rng(17)
EFFECT = {c: world.normal(0, 0.9, n) for c, n in CATS.items()}
FACTOR = {c: world.normal(0, 0.7, (n, 3)) for c, n in CATS.items()}


def export(rows, seed):
    """What the warehouse query returns: one dataframe per file."""
    rng = np.random.default_rng(seed)
    frame, score = {}, np.full(rows, -0.9)
    ids = {}
    for col, n in CATS.items():
        ids[col] = rng.integers(0, n, rows)
        frame[col] = [f"{col[:3]}-{v * 7919 % 100003:05d}" for v in ids[col]]
        score += EFFECT[col][ids[col]]
    score += (FACTOR["publisher"][ids["publisher"]] * FACTOR["campaign"][ids["campaign"]]).sum(1)
    hour = rng.uniform(0, 24, rows)
    frame["hour_sin"], frame["hour_cos"] = np.sin(hour * np.pi / 12), np.cos(hour * np.pi / 12)
    frame["recency"] = rng.exponential(1.0, rows)
    frame["depth"] = rng.normal(size=rows)
    score += 0.3 * frame["hour_sin"] - 0.25 * frame["recency"] + 0.2 * frame["depth"]
    frame["click"] = (rng.uniform(size=rows) < 1 / (1 + np.exp(-score))).astype(np.float32)
    return pd.DataFrame(frame)


lookup = {c: {} for c in CATS}


def to_codes(col, values):
    if MENDED:
        table = lookup[col]
        return np.array([table.setdefault(v, len(table)) for v in values])
    codes, _ = pd.factorize(values)
    return codes


def tensors(df):
    cats = np.stack([to_codes(c, df[c].to_numpy()) for c in CATS], 1)
    nums = df[NUMS].to_numpy(np.float32).copy()
    return torch.as_tensor(cats), torch.as_tensor(nums), torch.as_tensor(df["click"].to_numpy().copy())


class DeepFM(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.linear = nn.ModuleList(nn.Embedding(n, 1) for n in CATS.values())
        self.embed = nn.ModuleList(nn.Embedding(n, dim) for n in CATS.values())
        for e in self.linear:
            nn.init.zeros_(e.weight)
        for e in self.embed:
            nn.init.normal_(e.weight, std=0.1)
        self.mlp = nn.Sequential(
            nn.Linear(dim * len(CATS) + len(NUMS), 96), nn.ReLU(), nn.Linear(96, 48), nn.ReLU(), nn.Linear(48, 1)
        )
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, cats, nums):
        first = sum(e(cats[:, i]) for i, e in enumerate(self.linear))
        v = torch.stack([e(cats[:, i]) for i, e in enumerate(self.embed)], 1)
        pair = 0.5 * (v.sum(1).pow(2) - v.pow(2).sum(1)).sum(1, keepdim=True)
        deep = self.mlp(torch.cat([v.flatten(1), nums], 1))
        return (first + pair + deep + self.bias).squeeze(1)


def auc(score, label):
    rank = score.argsort().argsort().double() + 1
    pos = label > 0.5
    n1, n0 = pos.sum(), (~pos).sum()
    return ((rank[pos].sum() - n1 * (n1 + 1) / 2) / (n1 * n0)).item()


files = [("backfill", export(140 * BATCH, 1))] + [(f"day{d:02d}", export(75 * BATCH, 100 + d)) for d in range(1, 9)]
model = DeepFM()
opt = torch.optim.Adam(model.parameters(), lr=4e-3)
bce = nn.BCEWithLogitsLoss()

step = 0
for name, df in files:
    cats, nums, y = tensors(df)
    with torch.no_grad():
        pre = auc(model(cats[:6000], nums[:6000]), y[:6000])
    running = []
    for b in range(0, len(y), BATCH):
        sl = slice(b, b + BATCH)
        loss = bce(model(cats[sl], nums[sl]), y[sl])
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        running.append(loss.item())
        if step % 25 == 0:
            print(f"{name} step {step} logloss {np.mean(running[-25:]):.4f}", flush=True)
    print(f"== {name}: AUC before training on it {pre:.4f}, mean logloss {np.mean(running):.4f}", flush=True)
