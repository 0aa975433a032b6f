# expect: sick
# symptom: the loss falls nicely and then is NaN from one step on and never comes back
# axis: model
# cause: attention pooling masks with -inf, and a user with an empty history has every key masked: softmax NaN
# says: (all|every|fully|entire|whole|empty|no (valid|real)).{0,60}(mask|pad|histor)|mask.{0,50}(all|every|-inf)
# onset_step: 146
# fix: mask with a large finite negative number (or give empty rows a zero vector) so that softmax stays finite
# mended: the script applies that change if the environment has MENDED=1
"""Click prediction from a user's item history: attention pooling with the candidate as the query."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
N_ITEMS, N_TOPICS, MAX_HIST, BATCH, EPOCHS = 80, 5, 20, 64, 2


class ClickLog(Dataset):
    """Each row: the last items a user has looked at, a candidate item, clicked or not."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.topic = np.arange(N_ITEMS + 1) % N_TOPICS
        self.rows = []
        for _ in range(n):
            liked = rng.choice(N_TOPICS, size=1, replace=False)
            length = min(rng.poisson(8.6), MAX_HIST)
            hist = []
            while len(hist) < length:
                item = int(rng.integers(1, N_ITEMS + 1))
                if self.topic[item] in liked or rng.random() < 0.05:
                    hist.append(item)
            if rng.random() < 0.5:
                cand = int(rng.choice(np.flatnonzero(np.isin(self.topic[1:], liked))) + 1)
            else:
                cand = int(rng.integers(1, N_ITEMS + 1))
            p = 0.92 if self.topic[cand] in liked else 0.06
            self.rows.append((hist, cand, float(rng.random() < p)))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    hist = torch.zeros(len(rows), MAX_HIST, dtype=torch.long)
    for k, (h, _, _) in enumerate(rows):
        hist[k, : len(h)] = torch.tensor(h, dtype=torch.long)
    cand = torch.tensor([r[1] for r in rows])
    label = torch.tensor([r[2] for r in rows])
    return hist, cand, label


class HistoryRanker(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.items = nn.Embedding(N_ITEMS + 1, dim, padding_idx=0)
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)
        self.head = nn.Sequential(nn.Linear(3 * dim, 64), nn.ReLU(), nn.Linear(64, 1))
        self.mask_value = -1e9 if MENDED else float("-inf")

    def forward(self, hist, cand):
        h, c = self.items(hist), self.items(cand)
        q = self.query(c).unsqueeze(1)
        scores = (q * self.key(h)).sum(-1) / h.size(-1) ** 0.5
        scores = scores.masked_fill(hist == 0, self.mask_value)
        att = F.softmax(scores, dim=1)
        pooled = (att.unsqueeze(-1) * self.value(h)).sum(1)
        return self.head(torch.cat([pooled, c, pooled * c], dim=-1)).squeeze(-1)


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hit = n = 0
    for hist, cand, label in loader:
        hit += ((model(hist, cand) > 0).float() == label).sum().item()
        n += len(label)
    model.train()
    return hit / n


def main():
    torch.manual_seed(5)
    train = DataLoader(ClickLog(12800, 1), batch_size=BATCH, shuffle=True, collate_fn=collate)
    valid = DataLoader(ClickLog(1500, 2), batch_size=256, collate_fn=collate)
    model = HistoryRanker()
    opt = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=1e-4)
    step = 0
    for epoch in range(EPOCHS):
        for hist, cand, label in train:
            loss = F.binary_cross_entropy_with_logits(model(hist, cand), label)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 20 == 0:
                print(f"epoch {epoch} step {step:4d} loss {loss.item():.4f}")
            step += 1
        print(f"epoch {epoch} valid accuracy {accuracy(model, valid):.3f}")


if __name__ == "__main__":
    main()
