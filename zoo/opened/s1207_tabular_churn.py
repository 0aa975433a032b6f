# expect: sick
# symptom: train loss falls as it should, validation loss rises from the first epochs and validation accuracy stays near chance
# axis: data
# cause: the category codes are built anew for each split (in order of appearance), so the same string has another integer in validation than in training and the embeddings looked up there belong to other categories
# says: (encod|categor|vocab|mapping|factori[sz]|code.?book|\bcodes\b|integer|\bids?\b|dictionar|lookup).{0,140}(split|separate|each|own|independent|differ|anew|mismatch|inconsisten|not the same|refit|rebuilt|again|train)|(fit|refit|built|encoded|codes?).{0,60}(valid|test|each split|separately)
# onset_step: 0
# fix: build the code books on the training split and reuse them (unknown -> 0) for validation
# mended: the code books of the training split are passed on to the validation split
"""Customer churn from a table with string columns and a few numbers; embeddings + MLP."""

import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(31)

COLUMNS = {"city": 40, "plan": 8, "channel": 12, "device": 25, "agent": 30}
NUMERIC, EPOCHS, BATCH = 4, 14, 192


def make_table(n, seed):
    rng = np.random.default_rng(seed)
    world = np.random.default_rng(100)
    effect = {c: world.normal(0, 1.0, k) for c, k in COLUMNS.items()}
    cross = world.normal(0, 0.8, (COLUMNS["plan"], COLUMNS["channel"]))
    rows = {c: rng.integers(0, k, n) for c, k in COLUMNS.items()}
    num = rng.normal(0, 1, (n, NUMERIC)) * [10, 1, 300, 0.1] + [50, 0, 1200, 0.5]
    z = sum(effect[c][rows[c]] for c in COLUMNS) + cross[rows["plan"], rows["channel"]]
    z = z + 0.5 * (num[:, 0] - 50) / 10
    label = (rng.random(n) < 1 / (1 + np.exp(-1.5 * z))).astype(np.float32)
    table = {c: [f"{c}_{v:03d}" for v in rows[c]] for c in COLUMNS}
    return table, num.astype(np.float32), label


def encode(column, book):
    """Strings to integers; 0 is kept for unknown."""
    grow = len(book) == 0
    out = np.zeros(len(column), np.int64)
    for i, s in enumerate(column):
        if grow or s in book:
            out[i] = book.setdefault(s, len(book) + 1)
    return out


def prepare(table, num, label, books=None, stats=None):
    books = books or {c: {} for c in table}
    codes = []
    for c in table:
        book = books[c] if len(books[c]) else {}
        codes.append(encode(table[c], book))
        books[c] = book
    stats = stats or (num.mean(0), num.std(0))
    x_num = (num - stats[0]) / stats[1]
    data = (torch.from_numpy(np.stack(codes, 1)), torch.from_numpy(x_num).float(), torch.from_numpy(label))
    return data, books, stats


class Net(nn.Module):
    def __init__(self, sizes, d=8, hidden=192):
        super().__init__()
        self.emb = nn.ModuleList(nn.Embedding(k + 1, d) for k in sizes)
        self.mlp = nn.Sequential(
            nn.Linear(d * len(sizes) + NUMERIC, hidden),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 1),
        )

    def forward(self, cat, num):
        e = [m(cat[:, i]) for i, m in enumerate(self.emb)]
        return self.mlp(torch.cat(e + [num], 1)).squeeze(1)


def main():
    train, books, stats = prepare(*make_table(12000, 1))
    valid, _, _ = prepare(*make_table(2000, 2), books=books if MENDED else None, stats=stats)
    print(
        "columns:",
        ", ".join(f"{c}={len(b)}" for c, b in books.items()),
        f"| positive share {train[2].mean():.3f} / {valid[2].mean():.3f}",
    )
    model = Net([len(books[c]) for c in books])
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    step, t0 = 0, time.time()
    for epoch in range(EPOCHS):
        model.train()
        total = 0.0
        perm = torch.randperm(len(train[2]))
        for idx in perm.split(BATCH):
            loss = F.binary_cross_entropy_with_logits(model(train[0][idx], train[1][idx]), train[2][idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() * len(idx)
            if step % 50 == 0:
                print(f"step {step:4d} loss {loss.item():.4f}", flush=True)
            step += 1
        model.eval()
        with torch.no_grad():
            z = model(valid[0], valid[1])
            vl = F.binary_cross_entropy_with_logits(z, valid[2]).item()
            va = ((z > 0).float() == valid[2]).float().mean().item()
        print(f"epoch {epoch:2d} train {total / len(perm):.4f} valid {vl:.4f} acc {va:.3f}", flush=True)
    print(f"done {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
