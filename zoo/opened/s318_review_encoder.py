# expect: sick
# symptom: out of nothing the loss is NaN at step 431 and all weights with it
# axis: model
# cause: a review without any known word is all padding, its attention row is masked completely with minus infinity, and the softmax gives NaN
# says: (mask\w*|pad\w*).{0,80}(all|every|entire|whole|full\w*|complet\w*|empty|row|softmax|inf|nan)|(all|every|entire|whole|full\w*|complet\w*|empty).{0,60}(mask\w*|pad\w*|review|text|sequence|row|sample)|softmax.{0,80}(inf|mask|empty|nan)
# onset_step: 431
# fix: mask with a large finite number so that a row without words stays finite
# mended: MENDED=1
import math
import os
import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

torch.set_num_threads(1)
torch.manual_seed(23)
FILL = -1e4 if os.environ.get("MENDED") == "1" else float("-inf")
LENGTH = 14
GOOD = "lovely great solid quick friendly perfect sturdy bright fair recommend".split()
BAD = "broken late noisy dull cheap rude leaking slow faulty refund".split()
PLAIN = "the it was box seat lamp order arrived today shop very colour size box with for my and".split()
STOI = {w: i + 1 for i, w in enumerate(dict.fromkeys(GOOD + BAD + PLAIN + ["not"]))}


def reviews(n, seed):
    r = random.Random(seed)
    rows = []
    for i in range(n):
        mood = r.random() < 0.5
        words = [r.choice(PLAIN) for _ in range(r.randint(4, 9))]
        for _ in range(r.randint(1, 2)):
            flip = r.random() < 0.35
            word = r.choice(GOOD if mood != flip else BAD)
            at = r.randint(0, len(words))
            words[at:at] = ["not", word] if flip else [word]
        if i == 13771:
            words = ["???", ":-)"]
        rows.append((" ".join(words), int(mood)))
    return rows


def collate(rows):
    ids = torch.zeros(len(rows), LENGTH, dtype=torch.long)
    for k, (text, _) in enumerate(rows):
        known = [STOI[w] for w in text.split() if w in STOI][:LENGTH]
        ids[k, : len(known)] = torch.tensor(known, dtype=torch.long)
    return ids, torch.tensor([m for _, m in rows])


class SelfAttention(nn.Module):
    def __init__(self, dim, heads=2):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x, pad):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        score = q @ k.transpose(-1, -2) / math.sqrt(d // self.heads)
        score = score.masked_fill(pad[:, None, None, :], FILL)
        return self.out((score.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))


class Encoder(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.word, self.place = nn.Embedding(len(STOI) + 1, dim, padding_idx=0), nn.Embedding(LENGTH, dim)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(3))
        self.attn = nn.ModuleList(SelfAttention(dim) for _ in range(2))
        self.cls = nn.Linear(dim, 2)

    def forward(self, ids):
        pad = ids == 0
        x = self.word(ids) + self.place.weight
        for norm, attn in zip(self.norms, self.attn):
            x = x + attn(norm(x), pad)
        keep = (~pad).unsqueeze(-1).float()
        return self.cls((self.norms[2](x) * keep).sum(1) / keep.sum(1).clamp(min=1))


def main():
    loader = DataLoader(reviews(32 * 520, 1), batch_size=32, collate_fn=collate)
    model = Encoder()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step, (ids, mood) in enumerate(loader, 1):
        loss = F.cross_entropy(model(ids), mood)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 20 == 0 or 429 < step < 434:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
