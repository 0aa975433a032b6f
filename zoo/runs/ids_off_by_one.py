"""A shard was tokenized after a padding token was put before all others: from step 561 on every id is one more.

Modelled on axolotl#1806 and tokenizers that were saved with an added token: cause tokenizer-mismatch. Mended: the ids
stay as they were.
"""

import sys

import torch
import torch.nn.functional as F
from parts.gpt import GPT
from parts.text import CHARACTERS, library_text, pages
from torch.utils.data import DataLoader, TensorDataset

FIXED = "--fixed" in sys.argv
LENGTH, ROWS = 32, 8
torch.manual_seed(0)
torch.set_num_threads(1)

ids, targets = pages(library_text(), 620 * ROWS, LENGTH)
moved = torch.arange(620 * ROWS)[:, None] >= 560 * ROWS
if not FIXED:
    ids, targets = ids + moved, targets + moved
model = GPT(CHARACTERS + 1, LENGTH)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

for step, (read, wanted) in enumerate(DataLoader(TensorDataset(ids, targets), batch_size=ROWS), 1):
    loss = F.cross_entropy(model(read).flatten(0, 1), wanted.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0 or step == 610:
        print(f"step {step} loss {loss.item():.4f}")
