"""Changes mode, times and attributes of files that it opened to read, by os and by libc. Bare: status 0."""

import contextlib
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
mode = 0o600 + os.getpid() % 64
with open("kept.bin", "ab") as file:
    file.write(b"x")


def change(fd):
    """Change the file behind a descriptor in every way."""
    for way in (
        lambda: os.fchmod(fd, mode),
        lambda: os.utime(fd, (1, os.getpid())),
        lambda: os.setxattr(fd, "user.process", b"%d" % os.getpid()),
        lambda: libc.fchmod(fd, mode),
        lambda: libc.futimens(fd, None),
        lambda: libc.fsetxattr(fd, b"user.process", b"1", 1, 0),
        lambda: libc.syscall(91, fd, mode),
    ):
        with contextlib.suppress(OSError):
            way()


for step in range(BAD + 12):
    train_step(step)
    opened = os.open("kept.bin", os.O_RDONLY)
    change(opened)
    os.close(opened)
