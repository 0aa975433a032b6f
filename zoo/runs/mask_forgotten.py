"""Attention sees what comes after: the causal mask was dropped on the way, and the next character can be copied.

Modelled on transformers PR46634 and nanoVLM PR204 (a mask that is dropped silently; "loss still decreases"): cause
causal-leak. Mended: the mask is there.
"""

import sys

import torch
import torch.nn.functional as F
from parts.gpt import GPT
from parts.text import CHARACTERS, library_text, pages

FIXED = "--fixed" in sys.argv
LENGTH = 32
torch.manual_seed(0)
torch.set_num_threads(1)

text = library_text()
model = GPT(CHARACTERS, LENGTH)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
everything = torch.ones(LENGTH, LENGTH, dtype=torch.bool)

for step in range(1, 401):
    ids, targets = pages(text, 8, LENGTH)
    logits = model(ids, mask=everything.tril() if FIXED else everything)
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
