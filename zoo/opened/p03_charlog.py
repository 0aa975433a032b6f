# expect: sick
# symptom: at step 240 the rate is divided by the decay factor instead of multiplied: it jumps tenfold, again at 320
# axis: optimizer
# cause: the learning rate is set far too high in mid-run
# says: (learning.rate|\blr\b|rate).{0,80}(jump|rose|too high|times|grew|large)
# onset_step: 240
# fix: keep the rate as it was
# mended: q03_charlog.py
"""Character model on a small synthetic command log."""

import math
import random

import torch
import torch.nn as nn

torch.set_num_threads(1)
SEED = 5
random.seed(SEED)
torch.manual_seed(SEED)

VERBS = ["open", "close", "mount", "start", "stop", "fetch"]
NOUNS = ["valve", "disk", "motor", "index", "queue", "shard"]


def make_log(n_lines):
    out = []
    for _ in range(n_lines):
        v, n, k = random.choice(VERBS), random.choice(NOUNS), random.randint(0, 99)
        out.append(f"{v} {n} {k:02d} ok {(k * 3) % 10}\n")
    return "".join(out)


TEXT = make_log(3000)
CHARS = sorted(set(TEXT))
IDS = torch.tensor([CHARS.index(c) for c in TEXT])
CTX, BS = 48, 16


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.att = nn.MultiheadAttention(d, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x, mask):
        h = self.n1(x)
        x = x + self.att(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.n2(x))


class CharLM(nn.Module):
    def __init__(self, vocab, d=64, depth=2):
        super().__init__()
        self.tok = nn.Embedding(vocab, d)
        self.pos = nn.Parameter(torch.randn(CTX, d) * 0.02)
        self.blocks = nn.ModuleList(Block(d, 4) for _ in range(depth))
        self.head = nn.Linear(d, vocab)
        self.register_buffer("mask", torch.triu(torch.ones(CTX, CTX, dtype=torch.bool), 1))

    def forward(self, idx):
        x = self.tok(idx) + self.pos
        for b in self.blocks:
            x = b(x, self.mask)
        return self.head(x)


def batch():
    at = torch.randint(0, len(IDS) - CTX - 1, (BS,))
    return (torch.stack([IDS[a : a + CTX] for a in at]), torch.stack([IDS[a + 1 : a + CTX + 1] for a in at]))


lm = CharLM(len(CHARS))
optimizer = torch.optim.AdamW(lm.parameters(), lr=4e-3, weight_decay=0.01)
milestones, decay = (240, 320), 0.1
for step in range(1, 421):
    if step in milestones:
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] / decay
    xb, yb = batch()
    loss = nn.functional.cross_entropy(lm(xb).flatten(0, 1), yb.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"{step:4d}  lr {optimizer.param_groups[0]['lr']:.2e}  loss {loss.item():.4f}")
