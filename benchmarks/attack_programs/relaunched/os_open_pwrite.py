"""Writes by os.open, pwrite, writev, sendfile and ftruncate every step. Bare: status 0."""

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


for step in range(BAD + 12):
    loss = train_step(step)
    fd = os.open("raw.bin", os.O_RDWR | os.O_CREAT, 0o644)
    os.pwrite(fd, f"{loss!r}".encode().ljust(32), 32 * (step % 8))
    os.writev(fd, [b"step", str(step).encode()])
    os.ftruncate(fd, 200)
    to = os.open("sent.bin", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.sendfile(to, fd, 0, 200)
    os.close(to)
    os.close(fd)
