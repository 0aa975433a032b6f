"""All weights were drawn with a deviation of 1 where 0.02 was meant: logits of some hundreds at the first step.

Modelled on mistral#115 and nanoGPT#136 (a loss far above ln V at the start): cause bad-initialization. Mended: 0.02.
"""

import sys

import torch
import torch.nn.functional as F
from parts.gpt import GPT
from parts.text import CHARACTERS, library_text, pages
from torch import nn

FIXED = "--fixed" in sys.argv
LENGTH = 32
torch.manual_seed(0)
torch.set_num_threads(1)

text = library_text()
model = GPT(CHARACTERS, LENGTH, width=64)
for module in model.modules():
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02 if FIXED else 2.0)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for step in range(1, 201):
    ids, targets = pages(text, 8, LENGTH)
    loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
