# expect: sick
# symptom: training loss goes down to the variance of the ratings and stops; test RMSE equals that of the mean rating
# axis: loss
# cause: predictions have shape (B, 1) and targets (B,), so the squared error broadcasts to (B, B) and every prediction is pulled to the batch mean
# says: broadcast|\b(shape|dimension)s?\W.{0,60}(mismatch|differ|disagree|not match|incompatib|wrong)|(mismatch\w*|different|inconsistent|unequal).{0,40}\b(shape|size|dimension)|\b(shape|size)s?.?mismatch|[(\[](\d+|B|N|batch)?,\s*1[\])].{0,40}(vs|and|against|target|label|rating)|(missing|forgot\w*|lack|needs?|without).{0,20}squeeze|B\s*(x|\*|,|by)\s*B\b|pairwise.{0,30}(error|loss|difference)
# onset_step: 1
# fix: squeeze the prediction to shape (B,) before the loss
# mended: with MENDED=1 the last dimension of the prediction is squeezed before the loss
import csv
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)


def build_ratings(path, n_users=400, n_items=250, n=24000, seed=0):
    rng = np.random.default_rng(seed)
    u_f, i_f = rng.normal(size=(n_users, 3)), rng.normal(size=(n_items, 3))
    u_b, i_b = rng.normal(scale=0.5, size=n_users), rng.normal(scale=0.5, size=n_items)
    with open(path, "w", newline="") as f:
        w = csv.writer(f)
        w.writerow(["user", "item", "rating"])
        for _ in range(n):
            u, i = rng.integers(n_users), rng.integers(n_items)
            r = 3.5 + u_b[u] + i_b[i] + 0.4 * u_f[u] @ i_f[i] + rng.normal(scale=0.25)
            w.writerow([u, i, round(float(np.clip(r, 0.5, 6.5)), 1)])


class Ratings:
    def __init__(self, path):
        with open(path, newline="") as f:
            rows = list(csv.DictReader(f))
        self.user = torch.tensor([int(r["user"]) for r in rows])
        self.item = torch.tensor([int(r["item"]) for r in rows])
        self.rating = torch.tensor([float(r["rating"]) for r in rows])

    def split(self, share=0.9):
        k = int(share * len(self.rating))
        return slice(0, k), slice(k, None)


class NeuMF(nn.Module):
    """Factors, biases and a small MLP over the concatenated embeddings."""

    def __init__(self, n_users, n_items, k=16):
        super().__init__()
        self.user = nn.Embedding(n_users, k)
        self.item = nn.Embedding(n_items, k)
        for e in (self.user, self.item):
            nn.init.normal_(e.weight, std=0.1)
        self.mlp = nn.Sequential(nn.Linear(3 * k, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.out = nn.Linear(32, 1)

    def forward(self, u, i):
        p, q = self.user(u), self.item(i)
        return self.out(self.mlp(torch.cat([p, q, p * q], dim=-1)))


class Recommender:
    def __init__(self, data, lr=4e-3, batch=256):
        self.data = data
        self.train_part, self.test_part = data.split()
        self.model = NeuMF(400, 250)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=lr, weight_decay=1e-2)
        self.batch = batch

    def loss(self, u, i, r):
        pred = self.model(u, i)
        if os.environ.get("MENDED") == "1":
            pred = pred.squeeze(-1)
        return ((pred - r) ** 2).mean()

    def rmse(self):
        d, s = self.data, self.test_part
        self.model.eval()
        with torch.no_grad():
            pred = self.model(d.user[s], d.item[s]).flatten().numpy()
        self.model.train()
        return float(np.sqrt(np.mean((pred - d.rating[s].numpy()) ** 2)))

    def fit(self, epochs):
        d, s = self.data, self.train_part
        user, item, rating = d.user[s], d.item[s], d.rating[s]
        for epoch in range(1, epochs + 1):
            order = torch.randperm(len(rating))
            losses = []
            for chunk in order.split(self.batch):
                loss = self.loss(user[chunk], item[chunk], rating[chunk])
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                losses.append(loss.item())
            print(f"epoch {epoch}  train mse {np.mean(losses):.4f}  test rmse {self.rmse():.4f}")


def main():
    torch.manual_seed(5)
    with tempfile.TemporaryDirectory() as tmp:
        path = Path(tmp) / "ratings.csv"
        build_ratings(path)
        data = Ratings(path)
    tr, te = data.split()
    base = (data.rating[te] - data.rating[tr].mean()).pow(2).mean().sqrt().item()
    print(f"{len(data.rating)} ratings, rmse of the mean rating {base:.4f}")
    Recommender(data).fit(epochs=9)


if __name__ == "__main__":
    main()
