"""Changes folder, modes, times and owner bits of its files every step. Bare: status 0."""

import os

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


os.makedirs("inner", exist_ok=True)
os.chdir("inner")
for step in range(BAD + 12):
    loss = train_step(step)
    if os.path.exists("../outer.txt"):
        os.chmod("../outer.txt", 0o600)
    with open("../outer.txt", "w") as out:
        out.write(repr(loss))
    os.chmod("../outer.txt", 0o400)
    os.utime("../outer.txt", (step, step))
    os.truncate("inner.txt", 0) if os.path.exists("inner.txt") else open("inner.txt", "x").close()
