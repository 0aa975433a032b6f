"""Steps 300 to 303 read a binary file as if it were text: four bad batches in a row, so leaving out one is not enough.

Modelled on llm-foundry#759 (a burst of strange data): cause bad-batch. A shift of the data is right as
well. Mended: other pages are read in their place.
"""

import sys

import torch
from parts.text import CHARACTERS, library_text, pages
from parts.writer import LENGTH, Writer, loss_of

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)

text = library_text()
book = [pages(text, 16, LENGTH) for _ in range(400)]
if not FIXED:
    for step in range(300, 304):
        book[step - 1] = (torch.randint(CHARACTERS, (16, LENGTH)), torch.randint(CHARACTERS, (16, LENGTH)))
loader = torch.utils.data.DataLoader(book, batch_size=None)
model = Writer()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

for step, (ids, targets) in enumerate(loader, 1):
    logits, told = model(ids)
    loss = loss_of(logits, told, targets, smallest=1e-8)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
