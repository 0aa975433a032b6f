"""Opens its files in modes w, a, r+, x and rb+ with seek and truncate every step. Bare: status 0."""

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


for step in range(BAD + 12):
    loss = train_step(step)
    with open("w.txt", "w") as out:
        out.write(f"{loss!r}\n")
    with open("a.txt", "a") as out:
        out.write(f"{step} {loss!r}\n")
    with open("w.txt", "r+") as out:
        out.seek(2)
        out.truncate()
    if os.path.exists("x.txt"):
        os.remove("x.txt")
    with open("x.txt", "x") as out:
        out.write(str(step))
    with open("a.txt", "rb+", buffering=0) as out:
        out.write(b"#")
