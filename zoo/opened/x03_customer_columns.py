# expect: healthy
# symptom: ids are given in several places, which looks like a vocabulary that is built anew
# axis: none
# mended: none
import csv
import io

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

COLUMNS = ["city", "device", "plan", "channel"]
LEVELS = {
    "city": ["rome", "oslo", "lima", "cairo", "delhi", "quito", "seoul"],
    "device": ["phone", "tablet", "laptop", "tv"],
    "plan": ["free", "basic", "pro"],
    "channel": ["ads", "mail", "search", "friend", "store"],
}


def make_csv(n, seed):
    rng = np.random.default_rng(seed)
    effect = {
        c: dict(zip(LEVELS[c], np.random.default_rng(i).normal(size=len(LEVELS[c])))) for i, c in enumerate(COLUMNS)
    }
    buf = io.StringIO()
    w = csv.writer(buf)
    w.writerow(COLUMNS + ["age", "spend"])
    for _ in range(n):
        row = [rng.choice(LEVELS[c]) for c in COLUMNS]
        age = rng.uniform(18, 70)
        spend = sum(effect[c][v] for c, v in zip(COLUMNS, row)) + 0.02 * (age - 44) + 0.1 * rng.normal()
        w.writerow(row + [f"{age:.2f}", f"{spend:.4f}"])
    return buf.getvalue()


class Customers(Dataset):
    def __init__(self, text, vocabs=None):
        rows = list(csv.DictReader(io.StringIO(text)))
        if vocabs is None:
            vocabs = {}
            for col in COLUMNS:
                vocab = {"<other>": 0}
                for r in rows:
                    vocab.setdefault(r[col], len(vocab))
                vocabs[col] = vocab
        self.vocabs = vocabs
        self.cat = torch.tensor([[vocabs[c].get(r[c], 0) for c in COLUMNS] for r in rows])
        self.num = torch.tensor([[(float(r["age"]) - 44) / 15] for r in rows])
        self.y = torch.tensor([float(r["spend"]) for r in rows])

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.cat[i], self.num[i], self.y[i]


class TabularNet(nn.Module):
    def __init__(self, sizes, d=6):
        super().__init__()
        self.embs = nn.ModuleList([nn.Embedding(s, d) for s in sizes])
        self.mlp = nn.Sequential(nn.Linear(d * len(sizes) + 1, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, cat, num):
        parts = [e(cat[:, i]) for i, e in enumerate(self.embs)]
        return self.mlp(torch.cat(parts + [num], 1)).squeeze(1)


torch.manual_seed(0)
train = Customers(make_csv(1600, seed=10))
val = Customers(make_csv(400, seed=11), vocabs=train.vocabs)
net = TabularNet([len(train.vocabs[c]) for c in COLUMNS])
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
mse = nn.MSELoss()
for epoch in range(6):
    net.train()
    for cat, num, y in DataLoader(train, batch_size=64, shuffle=True):
        opt.zero_grad()
        loss = mse(net(cat, num), y)
        loss.backward()
        opt.step()
    net.eval()
    with torch.no_grad():
        v = mse(net(val.cat, val.num), val.y).item()
    print(f"epoch {epoch} train loss {loss.item():.4f} val loss {v:.4f}")
