"""Attention under SGD with a rate two hundred times too high: its scores reach -1e5, and no mask is to blame.

A largest score below -1e4 once counted as a row without a key. Modelled on 2309.14322: cause learning-rate-too-high.
Mended: the usual rate.
"""

import sys

import torch
import torch.nn.functional as F
from parts.text import CHARACTERS, library_text, pages
from torch import nn

FIXED = "--fixed" in sys.argv
LENGTH, WIDTH = 32, 32
torch.manual_seed(0)
torch.set_num_threads(1)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(CHARACTERS, WIDTH), nn.Linear(WIDTH, CHARACTERS)
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("causal", torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril())

    def forward(self, ids):
        x = self.embed(ids)
        scores = self.query(x) @ self.key(x).transpose(1, 2) / WIDTH**0.5
        return self.head(x + scores.masked_fill(~self.causal, float("-inf")).softmax(-1) @ x)


text = library_text()
model = Reader()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 if FIXED else 20.0, momentum=0.9)

for step in range(1, 121):
    ids, targets = pages(text, 16, LENGTH)
    loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4g}")
