# expect: sick
# symptom: the rating model trains smoothly, but its error stays about about twice as high as in the team's earlier version; most items get the same score as their neighbours in the catalogue
# axis: precision
# cause: the interaction table with the user and item ids is stored in float16, which holds no integer above 2048 exactly, so that neighbouring ids are rounded to the same embedding row
# says: (float16|fp16|half|16.?bit|low.?precision|precision).{0,120}(\bids?\b|index|indices|integer|row|collid|collision|round|2048|embedding)|((\bids?\b|index|indices|integers?|categor\w*).{0,120}(collid|collision|collaps|round\w*|merge|float16|fp16|half|16.?bit|precision|2048))
# onset_step: 1
# fix: keep the ids as int64 (or the table as float64) and cast only the ratings
# mended: the table is written and kept as float64
import os
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(11)
rng = np.random.default_rng(11)
TABLE_DTYPE = np.float64 if os.environ.get("MENDED") == "1" else np.float16

N_USERS, N_ITEMS, N_ROWS = 1500, 8000, 300_000


def interactions():
    """user id, item id, hour of day, rating: one compact table."""
    user = rng.integers(1, N_USERS + 1, N_ROWS)
    item = rng.integers(1, N_ITEMS + 1, N_ROWS)
    hour = rng.integers(0, 24, N_ROWS)
    quality = rng.normal(0, 0.8, N_ITEMS + 1)
    mild = rng.normal(0, 0.4, N_USERS + 1)
    rating = 3.4 + quality[item] + mild[user] + 0.1 * np.sin(hour / 24 * 2 * np.pi) + rng.normal(0, 0.3, N_ROWS)
    return np.stack([user, item, hour, np.clip(rating, 1, 5)], 1).astype(TABLE_DTYPE)


class RatingTable(Dataset):
    def __init__(self, table):
        self.table = torch.from_numpy(table)

    def __len__(self):
        return len(self.table)

    def __getitems__(self, idx):
        rows = self.table[torch.as_tensor(idx)]
        return rows[:, 0].long(), rows[:, 1].long(), rows[:, 2].float(), rows[:, 3].float()


class BiasedMF(nn.Module):
    def __init__(self, k=8):
        super().__init__()
        self.user, self.item = nn.Embedding(N_USERS + 1, k), nn.Embedding(N_ITEMS + 1, k)
        self.user_bias, self.item_bias = nn.Embedding(N_USERS + 1, 1), nn.Embedding(N_ITEMS + 1, 1)
        self.mu = nn.Parameter(torch.tensor(3.0))
        self.context = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
        for e in (self.user, self.item):
            nn.init.normal_(e.weight, std=0.02)
        for e in (self.user_bias, self.item_bias):
            nn.init.zeros_(e.weight)

    def forward(self, u, i, hour):
        ang = hour / 24 * 2 * torch.pi
        ctx = self.context(torch.stack([ang.sin(), ang.cos()], 1)).squeeze(1)
        dot = (self.user(u) * self.item(i)).sum(1)
        return self.mu + self.user_bias(u).squeeze(1) + self.item_bias(i).squeeze(1) + dot + ctx


@torch.no_grad()
def rmse(model, loader):
    model.eval()
    se = torch.cat([(model(u, i, h) - r) ** 2 for u, i, h, r in loader])
    model.train()
    return se.mean().sqrt().item()


def main():
    table = interactions()
    print(f"table {table.shape}, {table.nbytes / 1e6:.1f} MB")
    cut = int(0.9 * N_ROWS)
    mk = dict(batch_size=1024, collate_fn=lambda b: b)
    train = DataLoader(RatingTable(table[:cut]), shuffle=True, **mk)
    test = DataLoader(RatingTable(table[cut:]), **mk)
    model = BiasedMF()
    opt = torch.optim.Adam(model.parameters(), lr=0.02)
    sched = torch.optim.lr_scheduler.StepLR(opt, step_size=1, gamma=0.4)
    step, t0 = 0, time.time()
    for epoch in range(3):
        for u, i, h, r in train:
            loss = ((model(u, i, h) - r) ** 2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 60 == 0:
                print(f"epoch {epoch} step {step} mse {loss.item():.4f}", flush=True)
        sched.step()
        print(f"epoch {epoch}: test rmse {rmse(model, test):.4f} ({time.time() - t0:.1f}s)")


main()
