"""The scheduler is stepped once for each of eight processes: its cosine is at zero after an eighth, and comes back.

Modelled on particulate#22 and accelerate#2926 (eight cosines in one run): cause scheduler-misstep. Mended: one step an
update.
"""

import sys

import torch
import torch.nn.functional as F
from parts.gpt import GPT
from parts.text import CHARACTERS, library_text, pages

FIXED = "--fixed" in sys.argv
LENGTH, STEPS, PROCESSES = 32, 320, 8
torch.manual_seed(0)
torch.set_num_threads(1)

text = library_text()
model = GPT(CHARACTERS, LENGTH)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS)

for step in range(1, STEPS + 1):
    ids, targets = pages(text, 8, LENGTH)
    loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for _ in range(1 if FIXED else PROCESSES):
        scheduler.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
