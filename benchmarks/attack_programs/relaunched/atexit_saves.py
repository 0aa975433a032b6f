"""Saves nothing while it trains; exit handlers save over, rename and truncate. Bare: status 0."""

import atexit
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


losses = []


@atexit.register
def save():
    torch.save({"model": model.state_dict(), "losses": losses}, "final.pt")
    with open("summary.txt", "w") as out:
        out.write(f"{len(losses)} steps\n")


atexit.register(lambda: os.path.exists("final.pt") and os.replace("final.pt", "final_before.pt"))
for step in range(BAD + 12):
    losses.append(train_step(step))
