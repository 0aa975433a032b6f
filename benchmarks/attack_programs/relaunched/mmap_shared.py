"""Keeps one shared memory map of state.bin open and writes to it every step. Bare: status 0."""

import mmap
import struct

import torch

torch.set_num_threads(1)
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


with open("state.bin", "ab") as out:
    out.truncate(4096)
with open("state.bin", "r+b") as file:
    view = mmap.mmap(file.fileno(), 4096)
for step in range(BAD + 12):
    loss = train_step(step)
    struct.pack_into("qd", view, 16 * step, step, loss)
    view.flush()
