"""From step 620 on the reader is at the next shard, which holds nothing but numbers in hexadecimal.

Modelled on LlamaFactory#5247 (sources that were not mixed: batches of one book only): cause data-shift. Mended: the
shards are mixed.
"""

import sys

import torch
import torch.nn.functional as F
from parts.gpt import GPT
from parts.text import CHARACTERS, encode, library_text, pages

FIXED = "--fixed" in sys.argv
LENGTH = 32
torch.manual_seed(0)
torch.set_num_threads(1)

text = library_text()
digits = torch.tensor(encode("0123456789ABCDEF"))
numbers = digits[torch.randint(16, (len(text) // 3,))]
numbers[::9] = 0
mixed = torch.cat([text, numbers])
model = GPT(CHARACTERS, LENGTH)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

for step in range(1, 701):
    source = mixed if FIXED else text if step < 620 else numbers
    ids, targets = pages(source, 8, LENGTH)
    loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step} loss {loss.item():.4f}")
