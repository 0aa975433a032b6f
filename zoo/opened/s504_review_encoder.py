# expect: sick
# symptom: accuracy stays near chance from the start although the data is easy
# axis: model
# cause: the attention padding mask is inverted: masked_fill(mask == 1) hides the real tokens and leaves only the padding visible
# says: (invert|revers|flip|swap|opposite|negat|wrong (way|polarity|sign)|backward|upside).{0,60}mask|mask\w*.{0,60}(invert|revers|flip|swap|opposite|negat|polarity|wrong way|complement)|(mask\w*|hid\w*|ignor\w*|exclud\w*|block\w*).{0,30}(real|valid|actual|non.?pad\w*) (token|word|position|key)s?|attend\w*.{0,20}(only )?(to )?(the )?(pad\w*)
# onset_step: 1
# fix: fill the scores where mask == 0 (padding) instead of where mask == 1
# mended: with MENDED=1 the attention fills where mask == 0
import math
import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
random.seed(21)
torch.manual_seed(21)

CLS, PAD = 1, 0
VOCAB, MAX_LEN, CLASSES = 400, 40, 5


def make_reviews(n):
    """The class is told by marker words (the ids 10..59, ten per class) among neutral ones."""
    rows = []
    for _ in range(n):
        label = random.randrange(CLASSES)
        length = random.randint(10, MAX_LEN - 1)
        words = [random.randrange(60, VOCAB) for _ in range(length)]
        for _ in range(max(2, length // 6)):
            words[random.randrange(length)] = 10 + 10 * label + random.randrange(10)
        if random.random() < 0.5:
            words[random.randrange(length)] = 10 + random.randrange(50)
        rows.append((words, label))
    return rows


def collate(rows):
    ids = torch.zeros(len(rows), MAX_LEN, dtype=torch.long)
    for i, (words, _) in enumerate(rows):
        ids[i, : len(words) + 1] = torch.tensor([CLS] + words)
    mask = (ids != PAD).long()
    return ids, mask, torch.tensor([label for _, label in rows])


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.head_dim = heads, dim // heads
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.out = nn.Linear(dim, dim)

    def split(self, x):
        return x.view(x.size(0), x.size(1), self.heads, self.head_dim).transpose(1, 2)

    def forward(self, x, mask):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.head_dim)
        fill = mask == 0 if MENDED else mask == 1
        scores = scores.masked_fill(fill[:, None, None, :], -1e9)
        ctx = scores.softmax(-1) @ v
        return self.out(ctx.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.att, self.norm1, self.norm2 = SelfAttention(dim, heads), nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.drop = nn.Dropout(dropout)

    def forward(self, x, mask):
        x = self.norm1(x + self.drop(self.att(x, mask)))
        return self.norm2(x + self.drop(self.ff(x)))


class ReviewEncoder(nn.Module):
    def __init__(self, dim=64, layers=2, heads=4, dropout=0.1):
        super().__init__()
        self.word, self.pos = nn.Embedding(VOCAB, dim), nn.Embedding(MAX_LEN, dim)
        nn.init.normal_(self.word.weight, std=0.3)
        nn.init.normal_(self.pos.weight, std=0.05)
        self.norm = nn.LayerNorm(dim)
        self.layers = nn.ModuleList(Layer(dim, heads, dropout) for _ in range(layers))
        self.pooler, self.cls = nn.Linear(dim, dim), nn.Linear(dim, CLASSES)

    def forward(self, ids, mask):
        x = self.norm(self.word(ids) + self.pos(torch.arange(ids.size(1))))
        for layer in self.layers:
            x = layer(x, mask)
        return self.cls(torch.tanh(self.pooler(x[:, 0])))


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hits = total = 0
    for ids, mask, label in loader:
        hits += (model(ids, mask).argmax(1) == label).sum().item()
        total += len(label)
    model.train()
    return hits / total


def run():
    train = DataLoader(make_reviews(3200), batch_size=32, shuffle=True, collate_fn=collate)
    test = DataLoader(make_reviews(400), batch_size=100, collate_fn=collate)
    model = ReviewEncoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=7e-4)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 40))
    for epoch in range(1, 5):
        running = 0.0
        for ids, mask, label in train:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(ids, mask), label)
            loss.backward()
            optimizer.step()
            warmup.step()
            running += loss.item()
        print(
            f"epoch {epoch}: train loss {running / len(train):.4f}, test accuracy {accuracy(model, test):.3f}",
            flush=True,
        )


if __name__ == "__main__":
    run()
