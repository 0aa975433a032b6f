# expect: sick
# symptom: training of the text classifier goes well, then loss is nan at one batch and for ever after
# axis: model
# cause: a text without any known word has all its attention scores masked with -inf; its softmax row is nan
# says: (mask|pad|attention|softmax).*(\ball\b|every|fully|whole|entire|empty|inf)|(empty|inf).*(mask|softmax)
# onset_step: 40
# fix: mask with a large finite negative number instead of -inf
# mended: the script applies that change if the environment has MENDED=1
"""Sentiment of short reviews with a one-block attention encoder."""

import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
ALT = os.environ.get("MENDED") == "1"
SEED, STEPS, BATCH, DIM, HEADS = 5, 300, 32, 48, 4
GOOD = ["fine", "great", "lovely", "solid", "superb", "neat", "warm", "crisp", "happy", "smart"]
BAD = ["poor", "awful", "broken", "dull", "cheap", "slow", "noisy", "flat", "weak", "sad"]
NEG = ["not", "never", "hardly"]
FILL = [f"w{i}" for i in range(60)]
RARE = [f"zz{i}" for i in range(4000)]


def write_review(rnd):
    if rnd.random() < 0.0006:
        return [rnd.choice(RARE) for _ in range(rnd.randint(1, 3))], rnd.randint(0, 1)
    words, score = [], 0
    while score == 0:
        words, score = [], 0
        for _ in range(rnd.randint(2, 7)):
            words += [rnd.choice(FILL) for _ in range(rnd.randint(0, 2))]
            sign = rnd.choice([1, -1])
            if rnd.random() < 0.12:
                words.append(rnd.choice(NEG))
                words.append(rnd.choice(BAD if sign > 0 else GOOD))
            else:
                words.append(rnd.choice(GOOD if sign > 0 else BAD))
            score += sign
            if rnd.random() < 0.1:
                words.append(rnd.choice(RARE))
    return words, int(score > 0)


class Vocab:
    def __init__(self, texts, min_count=5):
        count = {}
        for t in texts:
            for w in t:
                count[w] = count.get(w, 0) + 1
        self.index = {w: i + 1 for i, w in enumerate(sorted(w for w, c in count.items() if c >= min_count))}

    def __len__(self):
        return len(self.index) + 1

    def encode(self, words):
        return [self.index[w] for w in words if w in self.index]


def collate(rows):
    n = max(len(ids) for ids, _ in rows)
    x = torch.zeros(len(rows), n, dtype=torch.long)
    for i, (ids, _) in enumerate(rows):
        x[i, : len(ids)] = torch.tensor(ids, dtype=torch.long)
    return x, torch.tensor([y for _, y in rows])


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.out = nn.Linear(DIM, DIM)
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM))

    def forward(self, h, keep):
        b, n, _ = h.shape
        q, k, v = self.qkv(self.n1(h)).view(b, n, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        score = q @ k.transpose(-2, -1) / (DIM // HEADS) ** 0.5
        score = score.masked_fill(~keep[:, None, None, :], -1e9 if ALT else float("-inf"))
        ctx = (score.softmax(-1) @ v).transpose(1, 2).reshape(b, n, DIM)
        h = h + self.out(ctx)
        return h + self.mlp(self.n2(h))


class Classifier(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.emb = nn.Embedding(vocab, DIM, padding_idx=0)
        self.pos = nn.Parameter(torch.randn(64, DIM) * 0.1)
        self.block = Block()
        self.head = nn.Linear(DIM, 2)

    def forward(self, x):
        keep = x != 0
        h = self.block(self.emb(x) + self.pos[: x.shape[1]], keep)
        m = keep.unsqueeze(-1).float()
        return self.head((h * m).sum(1) / m.sum(1).clamp(min=1))


def main():
    rnd = random.Random(SEED)
    torch.manual_seed(SEED)
    raw = [write_review(rnd) for _ in range(5000)]
    test = [r for r in (write_review(rnd) for _ in range(600)) if len(r[0]) > 3]
    vocab = Vocab([w for w, _ in raw])
    rows = [(vocab.encode(w), y) for w, y in raw]
    xt, yt = collate([(vocab.encode(w), y) for w, y in test])
    model = Classifier(len(vocab))
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    step = 0
    while step < STEPS:
        rnd.shuffle(rows)
        for i in range(0, len(rows) - BATCH + 1, BATCH):
            x, y = collate(rows[i : i + BATCH])
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            step += 1
            if step % 20 == 0 or step == 1:
                print(f"step {step} loss {loss.item():.4f}")
            if step == STEPS:
                break
    model.eval()
    with torch.no_grad():
        acc = (model(xt).argmax(1) == yt).float().mean().item()
    print(f"final loss {loss.item():.4f} test accuracy {acc:.3f}")


if __name__ == "__main__":
    main()
