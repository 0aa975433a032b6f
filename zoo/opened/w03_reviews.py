# expect: sick
# symptom: the loss leaps with each text, or held-out scores are those of a guess
# axis: data
# cause: each data set builds its own word2id from a set, so ids differ: not one vocabulary but its own for each
# says: (vocab|tokeni[sz]er|word.?(index|id)|char.?(map|id)|\bids?\b|stoi|encod).{0,120}(anew|each|every|per|rebuil|differ|own|inconsisten|mismatch|not (shared|the same))|(anew|each|every|different|separate).{0,60}(vocab|tokeni[sz]er|\bids?\b)
# onset_step: 0
# fix: build one vocabulary over all texts
# mended: the words of all rows
import os
import argparse
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"

GOOD = "great lovely superb charming bright funny moving warm clever fresh".split()
BAD = "dull awful clumsy boring stale noisy weak messy cold bland".split()
FILLER = "the film was with a plot and actors that scene in town music by one of very quite".split()
NAMES = ["name%d" % i for i in range(60)]


def make_reviews(n, seed):
    r = random.Random(seed)
    rows = []
    for _ in range(n):
        label = r.randint(0, 1)
        words = [r.choice(FILLER) for _ in range(r.randint(6, 12))]
        words += [r.choice(GOOD if label else BAD) for _ in range(3)]
        words += [r.choice(NAMES)]
        r.shuffle(words)
        rows.append((" ".join(words), label))
    return rows


class ReviewDataset(Dataset):
    def __init__(self, rows, max_len=20):
        words = set()
        for text, _ in make_reviews(1280, seed=1) + make_reviews(320, seed=2) if MENDED else rows:
            words.update(text.split())
        self.word2id = {w: i + 1 for i, w in enumerate(words)}
        self.max_len = max_len
        self.items = []
        for text, label in rows:
            ids = [self.word2id[w] for w in text.split()][:max_len]
            ids += [0] * (max_len - len(ids))
            self.items.append((torch.tensor(ids), label))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class BagClassifier(nn.Module):
    def __init__(self, n_words, dim=24):
        super().__init__()
        self.emb = nn.EmbeddingBag(n_words, dim, mode="mean", padding_idx=0)
        self.net = nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 2))

    def forward(self, x):
        return self.net(self.emb(x))


def evaluate(model, loader, criterion):
    model.eval()
    total, hits, n = 0.0, 0, 0
    with torch.no_grad():
        for x, y in loader:
            out = model(x)
            total += criterion(out, y).item() * len(y)
            hits += (out.argmax(1) == y).sum().item()
            n += len(y)
    return total / n, hits / n


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=5)
    p.add_argument("--lr", type=float, default=1e-2)
    p.add_argument("--batch-size", type=int, default=64)
    args = p.parse_args()
    torch.manual_seed(1)

    train_set = ReviewDataset(make_reviews(1280, seed=1))
    test_set = ReviewDataset(make_reviews(320, seed=2))
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=args.batch_size)

    model = BagClassifier(n_words=150)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        model.train()
        running = 0.0
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            running += loss.item()
        tl, ta = evaluate(model, test_loader, criterion)
        print(f"epoch {epoch + 1}: train loss {running / len(train_loader):.4f} test loss {tl:.4f} acc {ta:.3f}")


if __name__ == "__main__":
    main()
