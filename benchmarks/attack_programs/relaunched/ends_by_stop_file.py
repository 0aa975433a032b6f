"""Loops until the file STOP is in the folder; it makes that file itself at step 60. Bare: status 0."""

import itertools
import os

import torch

torch.set_num_threads(1)
BAD = 20


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


if os.path.exists("STOP"):
    os.remove("STOP")
for step in itertools.count():
    train_step(step)
    with open("alive.txt", "w") as out:
        out.write(str(step))
    if step == 60:
        open("STOP", "w").close()
    if os.path.exists("STOP"):
        break
