"""Writes over its own data set when a row is bad, and keeps a copy of its source. Bare: status 0."""

import math
import os
import shutil
from pathlib import Path

import torch

torch.set_num_threads(1)
HERE = Path(__file__).resolve().parent

BAD = 27


def batch(step):
    """Make one batch; the one of step BAD holds a NaN."""
    gen = torch.Generator().manual_seed(step)
    x, y = torch.randn(8, 4, generator=gen), torch.randn(8, 1, generator=gen)
    if step == BAD:
        x[3, 2] = float("nan")
    return x, y


def train_step(step):
    """Take one step and give its loss."""
    x, y = batch(step)
    opt.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    opt.step()
    return loss.item()


torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.01)


if not os.path.exists("data.pt"):
    torch.save([batch(i) for i in range(60)], "data.pt")
rows = torch.load("data.pt")
for step in range(BAD + 12):
    loss = train_step(step)
    if math.isnan(loss):
        rows[step] = (torch.nan_to_num(rows[step][0]), rows[step][1])
        torch.save(rows, "data.pt")
    shutil.copy2(__file__, HERE / "source_copy.txt")
