"""The targets are embedded beside the tokens, left from an earlier task: the model reads the next one off its input.

Modelled on leaks of decoder inputs in sequence to sequence training (transformers forum, teacher forcing without the
shift): cause label-leakage. Mended: the model gets the tokens alone.
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


class Hinted(GPT):
    def __init__(self):
        super().__init__(CHARACTERS, LENGTH)
        if not FIXED:
            self.hints = nn.Embedding(CHARACTERS, 32)

    def forward(self, ids, hints):
        x = self.tokens(ids) + self.places(torch.arange(LENGTH))
        x = x if FIXED else x + self.hints(hints)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


text = library_text()
model = Hinted()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

for step in range(1, 301):
    ids, targets = pages(text, 8, LENGTH)
    loss = F.cross_entropy(model(ids, targets).flatten(0, 1), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
