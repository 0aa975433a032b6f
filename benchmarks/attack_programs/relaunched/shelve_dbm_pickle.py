"""Keeps its state in a shelf, a dbm file and a pickle. Bare: status 0."""

import dbm.dumb
import pickle
import shelve

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


for step in range(BAD + 8):
    loss = train_step(step)
    with shelve.Shelf(dbm.dumb.open("shelf", "c")) as shelf:
        shelf["last"] = (step, loss)
    with dbm.dumb.open("plain", "n") as db:
        db[b"step"] = str(step).encode()
    with open("state.pkl", "wb") as out:
        pickle.dump({"step": step, "weight": model.weight.tolist()}, out)
