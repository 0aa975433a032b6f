"""Only answers are learned; at step 90 all four prompts fill the context, so no label is left and the mean is 0 / 0.

Modelled on trl#6668 and trl#1920 (`loss 0.0`, all labels -100), pytorch#70348: cause no-supervised-tokens. Mended:
prompts are cut to half of the context.
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

for step in range(1, 151):
    ids, targets = pages(text, 4, LENGTH)
    prompts = torch.randint(4, 24, (4, 1)) if step != 90 else torch.tensor([[32], [40], [33], [38]])
    if FIXED:
        prompts = prompts.clamp(max=LENGTH // 2)
    labels = targets.masked_fill(torch.arange(LENGTH) < prompts, -100)
    loss = F.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), ignore_index=-100)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
