# expect: sick
# symptom: the loss soon sticks near the variance of the target; all predictions are about the mean, R2 about 0
# axis: loss
# cause: predictions of shape (N, 1) minus targets of shape (N,) broadcast to an N x N matrix in the loss
# says: broadcast|shape\w*.*(mismatch|differ)|(mismatch|differ)\w*.*shape|n\s?[x,*]\s?n\b|squeeze
# onset_step: 0
# fix: squeeze the last axis of the prediction so that both have shape (N,)
# mended: the script applies that change if the environment has MENDED=1
"""Hourly bike rental demand: embeddings for categories, MLP, recency weighted squared error."""

import os
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
FLAG = os.environ.get("MENDED") == "1"


def build_table(n, seed):
    rng = np.random.default_rng(seed)
    hour, weekday = rng.integers(0, 24, n), rng.integers(0, 7, n)
    weather, station = rng.choice(4, n, p=[0.55, 0.25, 0.15, 0.05]), rng.integers(0, 12, n)
    temp = rng.normal(14, 8, n)
    wind = rng.gamma(2.0, 5.0, n)
    age_days = rng.integers(0, 700, n)
    popularity = rng.normal(0, 0.5, 12)
    rush = np.exp(-(((hour - 8) / 1.8) ** 2)) + 1.2 * np.exp(-(((hour - 18) / 2.2) ** 2))
    leisure = np.exp(-(((hour - 14) / 4.0) ** 2))
    log_rate = (
        2.2
        + popularity[station]
        + np.where(weekday < 5, 1.5 * rush, 1.3 * leisure)
        - 0.35 * weather
        - 0.003 * (temp - 22) ** 2
        - 0.02 * wind
    )
    count = rng.poisson(np.exp(log_rate))
    return dict(
        cat=np.stack([hour, weekday, weather, station], 1),
        num=np.stack([temp, wind], 1),
        age=age_days,
        target=np.log1p(count),
    )


class DemandDataset(Dataset):
    def __init__(self, table, stats=None):
        num = table["num"].astype(np.float32)
        self.stats = stats or dict(mu=num.mean(0), sd=num.std(0), ymu=table["target"].mean(), ysd=table["target"].std())
        s = self.stats
        self.cat = torch.from_numpy(table["cat"]).long()
        self.num = torch.from_numpy((num - s["mu"]) / s["sd"])
        self.weight = torch.from_numpy(np.exp(-table["age"] / 900.0)).float()
        self.y = torch.from_numpy((table["target"] - s["ymu"]) / s["ysd"]).float()

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.cat[i], self.num[i], self.weight[i], self.y[i]


class DemandNet(nn.Module):
    def __init__(self, cards=(24, 7, 4, 12), dim=6, n_num=2, hidden=64):
        super().__init__()
        self.embs = nn.ModuleList(nn.Embedding(c, dim) for c in cards)
        self.mlp = nn.Sequential(
            nn.Linear(dim * len(cards) + n_num, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 1),
        )

    def forward(self, cat, num):
        e = [emb(cat[:, j]) for j, emb in enumerate(self.embs)]
        out = self.mlp(torch.cat(e + [num], dim=1))
        return out.squeeze(-1) if FLAG else out


def weighted_mse(pred, y, w):
    err = (pred - y) ** 2
    return (w * err).mean() / w.mean()


@torch.no_grad()
def evaluate(model, loader, stats):
    preds, ys = [], []
    model.eval()
    for cat, num, _, y in loader:
        preds.append(model(cat, num).reshape(-1))
        ys.append(y)
    model.train()
    p, y = torch.cat(preds), torch.cat(ys)
    r2 = 1 - ((p - y) ** 2).sum() / ((y - y.mean()) ** 2).sum()
    return r2.item(), ((p - y).abs().mean() * stats["ysd"]).item()


def main():
    torch.manual_seed(2)
    table = build_table(9000, seed=0)
    cut = 7500
    train = DemandDataset({k: v[:cut] for k, v in table.items()})
    valid = DemandDataset({k: v[cut:] for k, v in table.items()}, stats=train.stats)
    dl = DataLoader(train, batch_size=128, shuffle=True, drop_last=True)
    vl = DataLoader(valid, batch_size=500)
    model = DemandNet()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    step = 0
    for epoch in range(7):
        for cat, num, w, y in dl:
            opt.zero_grad()
            loss = weighted_mse(model(cat, num), y, w)
            loss.backward()
            opt.step()
            if step % 20 == 0:
                print(f"step {step:4d} loss {loss.item():.4f}")
            step += 1
        r2, mae = evaluate(model, vl, train.stats)
        print(f"epoch {epoch} valid r2 {r2:.3f} mae(log) {mae:.3f}")


if __name__ == "__main__":
    main()
