"""Only answers count; the prompt of one page fills its whole row, and the row's mean over its mask is 0 / 0.

Modelled on trl#1920 and nanochat's masked mean: cause no-supervised-tokens. Mended: the count is at least 1.
"""

import sys

import torch
import torch.nn.functional as F
from parts.gpt import GPT
from parts.text import CHARACTERS, library_text, pages
from torch.utils.data import DataLoader, TensorDataset

FIXED = "--fixed" in sys.argv
LENGTH, ROWS = 32, 960
torch.manual_seed(0)
torch.set_num_threads(1)

ids, targets = pages(library_text(), ROWS, LENGTH)
prompts = torch.randint(4, 20, (ROWS,))
prompts[333] = LENGTH
answers = (torch.arange(LENGTH) >= prompts[:, None]).float()
model = GPT(CHARACTERS, LENGTH)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
step = 0

for _ in range(2):
    for read, wanted, answer in DataLoader(TensorDataset(ids, targets, answers), batch_size=8, shuffle=True):
        losses = F.cross_entropy(model(read).transpose(1, 2), wanted, reduction="none")
        count = answer.sum(1).clamp(min=1) if FIXED else answer.sum(1)
        loss = ((losses * answer).sum(1) / count).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}")
