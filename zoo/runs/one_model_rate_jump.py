"""The second stage of the schedule, from step 620 on, was typed as 0.06 where 0.002 was meant.

Six scripts have this model, and each another fault; see `parts/writer.py`.

Modelled on nanoGPT#136 and #411 (days at a high loss after a change of the rate): cause learning-rate-too-high.
Mended: the second stage has the rate that was meant.
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
stages = {1: 2e-3, 620: 2e-3 if FIXED else 6e-2}

for step in range(1, 701):
    for group in optimizer.param_groups:
        group["lr"] = stages.get(step, group["lr"])
    ids, targets = pages(text, 16, LENGTH)
    logits, told = model(ids)
    loss = loss_of(logits, told, targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step} loss {loss.item():.4f}")
