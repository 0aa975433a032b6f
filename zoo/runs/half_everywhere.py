"""bfloat16 weights without a float32 copy, at a small rate: nearly every update is rounded away.

Modelled on ml-by-hand PR85 (0 of 768 weights moved) and torchtune#2254: cause lost-updates. Mended: float32 weights.
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
if not FIXED:
    model = model.bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)

for step in range(1, 201):
    ids, targets = pages(text, 8, LENGTH)
    loss = F.cross_entropy(model(ids).float().flatten(0, 1), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
