"""A model that was trained on one tokenizer is trained on with another one: same characters, ids in another order.

The first 600 steps stand for the pretraining. Modelled on axolotl#1806 and DeepSeek-R1#151 (days until a changed
template or tokenizer was found): cause tokenizer-mismatch. Mended: the tokenizer of the pretraining is kept.
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
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
order = torch.randperm(CHARACTERS, generator=torch.Generator().manual_seed(3))

for step in range(1, 721):
    ids, targets = pages(text, 8, LENGTH)
    if step > 600 and not FIXED:
        ids, targets = order[ids], order[targets]
    loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step} loss {loss.item():.4f}")
