"""Draws from numpy, random and torch streams, forks the torch stream and restores it. Bare: a digest, status 0."""

import hashlib
import random

import numpy as np
import torch

torch.set_num_threads(1)


def digest(*things):
    """Print one hash of every weight, state and loss, bit for bit."""
    sha = hashlib.sha256()

    def eat(thing):
        if isinstance(thing, torch.Tensor):
            thing = thing.detach().cpu()
            thing = thing.to_dense() if thing.is_sparse else thing
            sha.update(f"{thing.dtype}{tuple(thing.shape)}".encode())
            thing = torch.view_as_real(thing) if thing.is_complex() else thing
            sha.update(bytes(thing.contiguous().reshape(-1).view(torch.uint8).tolist()))
        elif isinstance(thing, (torch.nn.Module, torch.optim.Optimizer)):
            eat(thing.state_dict())
        elif isinstance(thing, dict):
            for key, value in thing.items():
                sha.update(repr(key).encode() if isinstance(key, (str, int, float)) else b"key")
                eat(value)
        elif isinstance(thing, (list, tuple)):
            for item in thing:
                eat(item)
        else:
            sha.update((thing.hex() if isinstance(thing, float) else repr(thing)).encode())

    for thing in things:
        eat(thing)
    print("digest", sha.hexdigest())


def train_step(model, opt, x, y):
    """Take one ordinary step and give its loss."""
    opt.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    opt.step()
    return loss.item()


random.seed(1)
np.random.seed(2)
torch.manual_seed(3)
rows = np.random.default_rng(4)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.05)
losses, draws = [], []
for i in range(20):
    x = torch.tensor(rows.normal(size=(8, 4)), dtype=torch.float32) * random.uniform(0.5, 1.5)
    y = x.sum(1, keepdim=True) + float(np.random.randn())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(i)
        x = x + 0.1 * torch.randn(8, 4)
    losses.append(train_step(model, opt, x, y))
    draws.append((random.random(), float(np.random.rand()), torch.rand(1).item(), random.choice("abc")))
digest(model, losses, draws)
