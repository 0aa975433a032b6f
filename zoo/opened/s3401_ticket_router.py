# expect: sick
# symptom: the loss falls normally for some dozen steps, then turns to NaN at one step and stays NaN
# axis: model
# cause: tickets with no token left are all padding, and softmax over a row masked fully with -inf gives NaN
# says: (fully|\ball\b|entire|only|empty|zero|every).{0,50}(mask|pad|token|length|row|sequence)|no (word|token)
# onset_step: 30
# fix: mask with a large finite negative number (or drop empty tickets / keep at least one token)
# mended: the script applies that change if the environment has MENDED=1
"""Routes support tickets to one of six queues."""

import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(11)
rng = random.Random(11)

QUEUES = ["billing", "login", "shipping", "refund", "mobile", "other"]
FILLER = "the a is my to and hello please thanks i it of on".split()
TERMS = {q: [f"{q}{i}" for i in range(14)] for q in QUEUES}
SHARED = [f"word{i}" for i in range(60)]


def make_ticket():
    label = rng.randrange(len(QUEUES))
    words = []
    for _ in range(max(2, int(rng.gauss(14, 4)))):
        u = rng.random()
        if u < 0.45:
            words.append(rng.choice(FILLER))
        elif u < 0.75:
            words.append(rng.choice(SHARED))
        elif u < 0.80:
            words.append(rng.choice(TERMS[rng.choice(QUEUES)]))
        else:
            words.append(rng.choice(TERMS[QUEUES[label]]))
    return " ".join(words), label


class Vocab:
    def __init__(self, texts):
        words = sorted({w for t in texts for w in self.clean(t)})
        self.index = {w: i + 1 for i, w in enumerate(words)}

    @staticmethod
    def clean(text):
        return [w for w in text.lower().split() if w not in FILLER]

    def encode(self, text):
        return [self.index[w] for w in self.clean(text) if w in self.index]

    def __len__(self):
        return len(self.index) + 1


class Tickets(Dataset):
    def __init__(self, rows, vocab):
        self.rows = [(torch.tensor(vocab.encode(t), dtype=torch.long), y) for t, y in rows]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(batch):
    ids = nn.utils.rnn.pad_sequence([b[0] for b in batch], batch_first=True)
    return ids, torch.tensor([b[1] for b in batch])


class Router(nn.Module):
    def __init__(self, n_vocab, dim=48, heads=4):
        super().__init__()
        self.emb = nn.Embedding(n_vocab, dim, padding_idx=0)
        self.conv = nn.Conv1d(dim, dim, 3, padding=1)
        self.score = nn.Linear(dim, heads)
        self.norm = nn.LayerNorm(dim * heads)
        self.out = nn.Linear(dim * heads, len(QUEUES))
        self.blocked = torch.finfo(torch.float32).min if MENDED else float("-inf")

    def forward(self, ids):
        x = self.emb(ids)
        x = x + F.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)
        s = self.score(x).masked_fill(ids.eq(0).unsqueeze(-1), self.blocked)
        w = s.softmax(dim=1)
        pooled = torch.einsum("blh,bld->bhd", w, x).flatten(1)
        return self.out(self.norm(pooled))


def evaluate(model, loader):
    model.eval()
    hit = n = 0
    with torch.no_grad():
        for ids, y in loader:
            hit += (model(ids).argmax(-1) == y).sum().item()
            n += len(y)
    model.train()
    return hit / n


def main():
    rows = [make_ticket() for _ in range(5000)]
    train_rows, val_rows = rows[:4400], rows[4400:]
    vocab = Vocab(t for t, _ in train_rows)
    train = DataLoader(Tickets(train_rows, vocab), batch_size=32, shuffle=True, collate_fn=collate)
    val = DataLoader(Tickets(val_rows, vocab), batch_size=64, collate_fn=collate)
    model = Router(len(vocab))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    step = 0
    for epoch in range(3):
        for ids, y in train:
            loss = F.cross_entropy(model(ids), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 20 == 0:
                print(f"epoch {epoch} step {step:4d} loss {loss.item():.4f}")
            step += 1
        print(f"epoch {epoch} val_acc {evaluate(model, val):.3f}")


if __name__ == "__main__":
    main()
