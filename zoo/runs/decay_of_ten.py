"""Weight decay of 10 where 0.01 was meant: a hundredth of each weight is gone after every step, and with it the model.

Modelled on torchtune#2254's neighbours (a decay that does not do what its number says) and 2309.14322: cause
weight-decay-misuse. Mended: 0.01.
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
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01 if FIXED else 10.0)

for step in range(1, 301):
    ids, targets = pages(text, 8, LENGTH)
    loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
