"""Embedding and head begin with the same values, but the head got a copy: from the first step on they go apart.

Nothing looks sick. Modelled on transformers#30953 and TransformerLens#902 (weights that should be one): cause
tied-weights-broken. Mended: one tensor.
"""

import sys

import torch
import torch.nn.functional as F
from parts.gpt import GPT
from parts.text import CHARACTERS, library_text, pages
from torch import nn

FIXED = "--fixed" in sys.argv
LENGTH = 32
torch.manual_seed(0)
torch.set_num_threads(1)

text = library_text()
model = GPT(CHARACTERS, LENGTH)
shared = model.tokens.weight
model.head.weight = shared if FIXED else nn.Parameter(shared.detach().clone())
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

for step in range(1, 201):
    ids, targets = pages(text, 8, LENGTH)
    loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
