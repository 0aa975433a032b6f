"""Dies of its own error at the NaN and saves in sys.excepthook and finally. Bare: a traceback, status 1."""

import math
import sys

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


def hook(kind, value, trace):
    torch.save(model.state_dict(), "crash.pt")
    sys.__excepthook__(kind, value, trace)


sys.excepthook = hook
try:
    for step in range(BAD + 12):
        if math.isnan(train_step(step)):
            raise ArithmeticError(f"loss is NaN at step {step}")
finally:
    with open("finally.txt", "w") as out:
        out.write(f"{step}\n")
