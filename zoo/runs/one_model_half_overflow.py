"""A gain that a norm takes out again is raised by 3 % a step from step 250 on, until float16 ends at 65504.

Six scripts have this model, and each another fault; see `parts/writer.py`.

Modelled on transformers#5651 and #10830 (T5: 66246 > 65504 behind a linear layer): cause half-precision-overflow.
Mended: the island computes in bfloat16.
"""

import sys

import torch
from parts.text import library_text, pages
from parts.writer import LENGTH, Writer, loss_of

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)

text = library_text()
model = Writer(island=torch.bfloat16 if FIXED else torch.float16)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

for step in range(1, 701):
    ids, targets = pages(text, 16, LENGTH)
    logits, told = model(ids, gain=1.03 ** max(0, step - 250))
    loss = loss_of(logits, told, targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step} loss {loss.item():.4f}")
