"""The page of step 620 is a damaged file: one character without end.

Six scripts have this model, and each another fault; see `parts/writer.py`.

Modelled on llm-foundry#759 and LlamaFactory#5247 (a burst of strange data, a spike, no NaN): cause bad-batch.
Mended: the damaged page is left out and another one read in its place.
"""

import sys

import torch
from parts.text import library_text, pages
from parts.writer import LENGTH, Writer, loss_of

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)

text = library_text()
model = Writer()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

for step in range(1, 701):
    ids, targets = pages(text, 16, LENGTH)
    if step == 620 and not FIXED:
        ids, targets = torch.full_like(ids, ord("~") - 32), torch.full_like(targets, ord("~") - 32)
        ids[:, ::8], targets[:, ::4], targets[:, ::5] = ord("A") - 32, ord("a") - 32, 0
    logits, told = model(ids)
    loss = loss_of(logits, told, targets, smallest=1e-8)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step} loss {loss.item():.4f}")
