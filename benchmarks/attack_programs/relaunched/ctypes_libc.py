"""Opens, writes, renames and unlinks by libc calls through ctypes. Bare: status 0."""

import ctypes
import os

import torch

torch.set_num_threads(1)
BAD = 34


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


libc = ctypes.CDLL(None, use_errno=True)
for step in range(BAD + 12):
    text = f"{step} {train_step(step)!r}\n".encode()
    fd = libc.open(b"libc.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    libc.write(fd, text, len(text))
    libc.close(fd)
    libc.unlink(b"libc.before")
    libc.link(b"libc.txt", b"libc.before")
    libc.rename(b"libc.new", b"libc.txt")
    libc.truncate(b"libc.before", ctypes.c_long(4))
