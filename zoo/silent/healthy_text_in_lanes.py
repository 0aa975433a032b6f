"""A text is folded to [lanes, steps] and transposed: each lane holds a piece of it."""

import string

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

LANES, STEPS = 16, 24
rhyme = "the house that jack built held the malt that lay in the house that jack built and "
text = torch.tensor([string.printable.index(letter) for letter in rhyme * 200])
steps = len(text) // LANES
text = text[: steps * LANES]
grid = text.view(LANES, steps).t()

letters, cell, head = nn.Embedding(100, 16), nn.GRU(16, 48), nn.Linear(48, 100)
model = nn.ModuleList([letters, cell, head])
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

state = None
for step, start in enumerate(range(0, steps - STEPS - 1, STEPS // 4), 1):
    given, wanted = grid[start : start + STEPS], grid[start + 1 : start + 1 + STEPS]
    outputs, state = cell(letters(given), state)
    loss = nn.functional.cross_entropy(head(outputs).flatten(0, 1), wanted.flatten())
    state = state.detach()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
