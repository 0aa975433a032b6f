"""Labels are shifted when the batch is made and once more in the loss: the model learns the character after the next.

Nothing looks sick, the loss falls. Modelled on transformers PR47395, #46784 and amber-train#6 (two shifts, found after
months): cause label-misalignment. Mended: one shift.
"""

import sys

import torch
import torch.nn.functional as F
from parts.gpt import GPT
from parts.text import CHARACTERS, library_text, pages

FIXED = "--fixed" in sys.argv
LENGTH = 33
torch.manual_seed(0)
torch.set_num_threads(1)


def loss_of(logits, labels):
    if not FIXED:
        logits, labels = logits[:, :-1], labels[:, 1:]
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


text = library_text()
model = GPT(CHARACTERS, LENGTH)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

for step in range(1, 301):
    ids, labels = pages(text, 8, LENGTH)
    loss = loss_of(model(ids), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
