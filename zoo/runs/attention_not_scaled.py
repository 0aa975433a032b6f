"""Attention without the division by the root of its width, and queries and keys that start large: logits of hundreds.

Modelled on transformers#45676 (a scaling of 1, entropy 0.43 of 7 bits) and pytorch#125674: cause
attention-logit-growth. Mended: the division.
"""

import math
import sys

import torch
import torch.nn.functional as F
from parts.text import CHARACTERS, library_text, pages
from torch import nn

FIXED = "--fixed" in sys.argv
LENGTH, WIDTH = 32, 64
torch.manual_seed(0)
torch.set_num_threads(1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(1, 2) / (math.sqrt(WIDTH) if FIXED else 1.0)
        future = torch.ones(LENGTH, LENGTH).triu(1).bool()
        return self.out(scores.masked_fill(future, -math.inf).softmax(-1) @ v)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(CHARACTERS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.attention, self.norm, self.head = Attention(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CHARACTERS)

    def forward(self, ids):
        x = self.tokens(ids) + self.places.weight
        return self.head(self.norm(x + self.attention(x)))


text = library_text()
model = Reader()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

for step in range(1, 301):
    ids, targets = pages(text, 8, LENGTH)
    loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
