"""The page of step 620 has nothing but words: the share of all else is 0, and 0 times its logarithm is NaN.

Six scripts have this model, and each another fault; see `parts/writer.py`.

Modelled on terms that are fine until a count is zero (encodec-pytorch#8, magic_animate#6): cause singular-operation.
Mended: the share is at least 1e-8.
"""

import sys

import torch
from parts.text import SPACE, library_text, pages
from parts.writer import KINDS, LENGTH, Writer, loss_of

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)

text = library_text()
model = Writer()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

for step in range(1, 701):
    ids, targets = pages(text, 16, LENGTH)
    if step == 620:
        targets = torch.where(KINDS[targets] == 2, SPACE, targets)
    logits, told = model(ids)
    loss = loss_of(logits, told, targets, smallest=1e-8 if FIXED else 0.0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step} loss {loss.item():.4f}")
