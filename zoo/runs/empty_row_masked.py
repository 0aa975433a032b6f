"""Texts are padded on the left; at step 70 one is empty, so the first query has no key to look at: softmax of -inf.

Modelled on fairseq#2640 and transformers#31035 (left padding, a fully masked row): cause fully-masked-attention.
Mended: each position may look at itself.
"""

import math
import sys

import torch
import torch.nn.functional as F
from parts.text import CHARACTERS, library_text, pages
from torch import nn

FIXED = "--fixed" in sys.argv
LENGTH, WIDTH = 16, 32
torch.manual_seed(0)
torch.set_num_threads(1)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(CHARACTERS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.qkv, self.head = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, CHARACTERS)

    def forward(self, ids, padding):
        x = self.tokens(ids) + self.places.weight
        q, k, v = self.qkv(x).chunk(3, -1)
        hidden = ~torch.ones(LENGTH, LENGTH).tril().bool() | padding[:, None]
        if FIXED:
            hidden = hidden & ~torch.eye(LENGTH).bool()
        scores = (q @ k.transpose(1, 2) / math.sqrt(WIDTH)).masked_fill(hidden, -math.inf)
        return self.head(x + scores.softmax(-1) @ v)


text = library_text()
model = Reader()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

for step in range(1, 151):
    ids, targets = pages(text, 16, LENGTH)
    padded = torch.zeros(16, dtype=torch.long)
    if step >= 70 and step % 10 == 0:
        padded[3] = 5
    padding = torch.arange(LENGTH) < padded[:, None]
    loss = F.cross_entropy(model(ids, padding).flatten(0, 1), targets.masked_fill(padding, -100).flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
