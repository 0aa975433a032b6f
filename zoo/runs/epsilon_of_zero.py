"""Adam with an epsilon of 0: rows of the embedding that no batch has used divide zero by zero in the first update.

Modelled on openai/CLIP#40 and pytorch#8860: cause optimizer-epsilon-underflow. Mended: the usual 1e-8.
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
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, eps=1e-8 if FIXED else 0.0)

for step in range(1, 101):
    ids, targets = pages(text, 8, LENGTH)
    loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0 or step == 1:
        print(f"step {step} loss {loss.item():.4f}")
