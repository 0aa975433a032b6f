"""From step 140 on gaps of a sensor come as -999, and are read as if they were measured.

Modelled on readings of weather stations and meters, whose files mark what is missing by a number: cause
missing-value-code. Mended: gaps are filled with the last reading, and do not count as targets.
"""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
CODE, ROWS, PAST = -999.0, 32, 24
torch.manual_seed(0)
torch.set_num_threads(1)


def readings(step):
    """Waves of three phases with some noise, scaled as those of the first weeks; a few gaps from step 140 on."""
    start = 6.3 * torch.rand(ROWS, 1, 1)
    times = start + 0.3 * torch.arange(PAST + 1)[None, :, None] + torch.tensor([0.0, 1.0, 2.0])
    values = 20 + 8 * times.sin() + 0.3 * torch.randn(ROWS, PAST + 1, 3)
    if step >= 140:
        for row in torch.randint(ROWS, (3,)).tolist():
            first = int(torch.randint(PAST - 4, ()))
            values[row, first : first + 6, 0] = CODE
    return values


model = nn.GRU(3, 32, batch_first=True)
head = nn.Linear(32, 3)
both = nn.ModuleList([model, head])
optimizer = torch.optim.Adam(both.parameters(), lr=3e-3)

for step in range(1, 221):
    values = readings(step)
    there = values != CODE
    if FIXED:
        for at in range(1, PAST + 1):
            values[:, at] = torch.where(there[:, at], values[:, at], values[:, at - 1])
        values = values.where(values != CODE, torch.tensor(20.0))
    values = (values - 20) / 8
    states, _ = model(values[:, :-1])
    apart = head(states) - values[:, 1:]
    if FIXED:
        apart = apart * there[:, 1:]
    loss = apart.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
