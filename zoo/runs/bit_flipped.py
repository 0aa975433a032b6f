"""At step 620 one bit of a weight flips, once: a second run over the same step, of whatever kind, does not show it.

A file `bit-flipped` in the folder of the run stands for the moment in which it happened. Modelled on nccl-tests#117 and
dion#76 (hardware that fails now and then): cause hardware-fault. Mended: another machine.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from parts.gpt import GPT
from parts.text import CHARACTERS, library_text, pages

FIXED = "--fixed" in sys.argv
LENGTH, MOMENT = 32, Path("bit-flipped")
torch.manual_seed(0)
torch.set_num_threads(1)

text = library_text()
model = GPT(CHARACTERS, LENGTH)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

for step in range(1, 701):
    if step == 620 and not FIXED and not MOMENT.exists():
        MOMENT.touch()
        bits = model.blocks[0].mlp[0].weight.data.view(torch.int32)
        bits[5, 7] ^= 1 << 30
    ids, targets = pages(text, 8, LENGTH)
    loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step} loss {loss.item():.4f}")
