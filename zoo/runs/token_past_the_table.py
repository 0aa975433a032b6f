"""A special token got the id after the last row of the embedding; it comes first at step 5, and the script ends there.

Modelled on transformers#1848 and #24698 (`index out of range in self`, a device-side assert on a GPU): cause
token-out-of-range. Mended: the table has a row for it.
"""

import sys

import torch
import torch.nn.functional as F
from parts.gpt import GPT
from parts.text import CHARACTERS, library_text, pages

FIXED = "--fixed" in sys.argv
LENGTH, SPECIAL = 32, CHARACTERS
torch.manual_seed(0)
torch.set_num_threads(1)

text = library_text()
model = GPT(CHARACTERS + 1 if FIXED else CHARACTERS, LENGTH)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

for step in range(1, 101):
    ids, targets = pages(text, 8, LENGTH)
    if step % 5 == 0:
        ids[0, 0] = SPECIAL
    loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
