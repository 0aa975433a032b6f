"""Writes .npy, .npz and a memory-mapped array every step. Needs numpy; bare: status 0."""

import importlib.util
import sys

import numpy as np
import torch

if importlib.util.find_spec("numpy") is None:
    print("SKIP numpy is not installed")
    sys.exit(0)

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


log = np.memmap("losses.mm", dtype="float64", mode="w+", shape=(100,))
for step in range(BAD + 12):
    log[step] = train_step(step)
    log.flush()
    np.save("weight.npy", model.weight.detach().numpy())
    np.savez("all.npz", *[p.detach().numpy() for p in model.parameters()])
