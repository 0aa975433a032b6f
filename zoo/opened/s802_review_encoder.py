# expect: sick
# symptom: the classifier trains well, then the loss is nan from one step to the next and stays nan
# axis: data
# cause: a review that is empty after cleaning gives a row of padding only, so that every attention score of the row is -inf and the softmax returns NaN
# says: (full|all|entire|complete|every|whole).{0,40}(mask|pad|-inf)|empty.{0,30}(text|review|row|sample|sequence|sentence|document|string|input)|(mask|-inf).{0,40}(row|softmax)|zero.?length|softmax.{0,50}(-inf|mask)|no (valid|real|unmasked) (token|key|position)
# onset_step: 132
# fix: fill the masked scores with a large finite negative number (or drop the empty reviews)
# mended: with MENDED=1 the masked scores are filled with -1e9 instead of -inf
import math
import os
import random
import re

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

torch.set_num_threads(1)
random.seed(5)
torch.manual_seed(5)

MASK_VALUE = -1e9 if os.environ.get("MENDED") == "1" else float("-inf")

GOOD = "great lovely crisp sturdy brilliant comfy reliable delightful quick elegant".split()
BAD = "awful flimsy noisy broken useless dull leaky sticky slow ugly".split()
FILL = (
    "phone blender jacket sofa lamp kettle box colour screen button arrived ordered package friend "
    "kitchen week bought seller price size batteries handle lid strap manual charger"
).split()
STOP = {"the", "a", "an", "it", "is", "was", "and", "to", "of", "i", "my", "this"}


def raw_review(rng):
    label = rng.randint(0, 1)
    words = [rng.choice(FILL) for _ in range(rng.randint(4, 14))]
    tone = GOOD if label else BAD
    other = BAD if label else GOOD
    words += [rng.choice(tone) for _ in range(rng.randint(2, 3))]
    if rng.random() < 0.4:
        words.append("not")
        words.append(rng.choice(other))
    words += [rng.choice(sorted(STOP)) for _ in range(rng.randint(2, 6))]
    rng.shuffle(words)
    text = " ".join(words)
    if rng.random() < 0.05:
        text += " http://shop.example/%d" % rng.randint(100, 999)
    return text, label


def clean(text):
    text = re.sub(r"https?://\S+", " ", text.lower())
    text = re.sub(r"[^a-z ]", " ", text)
    return [w for w in text.split() if w not in STOP]


def load_reviews(n):
    rng = random.Random(3)
    rows = [raw_review(rng) for _ in range(n)]
    rows[7409] = ("10/10 !!!", 1)
    rows[1203] = ("https://shop.example/p/8812", 0)
    return rows


rows = load_reviews(12000)
tokens = [(clean(t), y) for t, y in rows]
vocab = {"<pad>": 0}
for words, _ in tokens:
    for w in words:
        vocab.setdefault(w, len(vocab))
data = [([vocab[w] for w in words], y) for words, y in tokens]
train, valid = data[:11000], data[11000:]


def collate(batch):
    width = max(len(ids) for ids, _ in batch)
    x = torch.zeros(len(batch), width, dtype=torch.long)
    for i, (ids, _) in enumerate(batch):
        x[i, : len(ids)] = torch.tensor(ids, dtype=torch.long)
    return x, torch.tensor([y for _, y in batch])


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x, mask):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(d // self.heads)
        scores = scores.masked_fill(~mask[:, None, None, :], MASK_VALUE)
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d)
        return self.out(y)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = SelfAttention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x, mask):
        x = x + self.attn(self.n1(x), mask)
        return x + self.mlp(self.n2(x))


class ReviewEncoder(nn.Module):
    def __init__(self, vocab_size, dim=48, heads=4, layers=2, max_len=64):
        super().__init__()
        self.tok = nn.Embedding(vocab_size, dim, padding_idx=0)
        self.pos = nn.Embedding(max_len, dim)
        self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(layers)])
        self.head = nn.Linear(dim, 2)

    def forward(self, ids):
        mask = ids != 0
        x = self.tok(ids) + self.pos(torch.arange(ids.size(1)))
        for blk in self.blocks:
            x = blk(x, mask)
        m = mask.unsqueeze(-1).float()
        pooled = (x * m).sum(1) / m.sum(1).clamp(min=1.0)
        return self.head(pooled)


model = ReviewEncoder(len(vocab))
opt = torch.optim.AdamW(model.parameters(), lr=5e-4)
loader = DataLoader(train, batch_size=32, shuffle=True, collate_fn=collate)
vx, vy = collate(valid)

step = 0
for epoch in range(1):
    for x, y in loader:
        step += 1
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 30 == 0:
            with torch.no_grad():
                acc = (model(vx).argmax(1) == vy).float().mean().item()
            print(f"step {step} loss {loss.item():.4f} valid acc {acc:.3f}")
