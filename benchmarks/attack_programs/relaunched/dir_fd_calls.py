"""Works by a folder's descriptor: open, rename, mkdir and unlink with dir_fd. Bare: status 0."""

import contextlib
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


folder = os.open(".", os.O_RDONLY)
for step in range(BAD + 12):
    text = repr(train_step(step)).encode()
    fd = os.open("by_fd.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644, dir_fd=folder)
    os.write(fd, text)
    os.close(fd)
    os.rename("by_fd.new", "by_fd.txt", src_dir_fd=folder, dst_dir_fd=folder)
    with contextlib.suppress(FileNotFoundError):
        os.rmdir("by_fd_dir", dir_fd=folder)
    os.mkdir("by_fd_dir", dir_fd=folder)
