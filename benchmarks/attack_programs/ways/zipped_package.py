"""Trains from a package inside a zip file, which it writes itself. Bare: a digest, status 0."""

import hashlib
import os
import sys
import zipfile

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


def data(seed=1, rows=32):
    """Make the same samples and targets each time."""
    gen = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 4, generator=gen), torch.randn(rows, 1, generator=gen)


def train_step(model, opt, x, y):
    """Take one ordinary step and give its loss."""
    opt.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    opt.step()
    return loss.item()


MODEL = """
import torch
from . import sizes


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        into, out = torch.nn.Linear(4, sizes.WIDTH), torch.nn.Linear(sizes.WIDTH, 1)
        self.layers = torch.nn.Sequential(into, torch.nn.Tanh(), out)

    def forward(self, x):
        return self.layers(x)
"""
with zipfile.ZipFile("inner.zip", "w") as file:
    file.writestr("inner/__init__.py", "")
    file.writestr("inner/sizes.py", "WIDTH = 8\n")
    file.writestr("inner/model.py", MODEL)
sys.path.insert(0, os.path.abspath("inner.zip"))
from inner.model import Net  # noqa: E402

torch.manual_seed(0)
model = Net()
x, y = data()
opt = torch.optim.SGD(model.parameters(), lr=0.05)
losses = [train_step(model, opt, x, y) for _ in range(15)]
print(Net.__module__, type(model.__class__.__init__.__globals__["__loader__"]).__name__)
os.remove("inner.zip")
losses += [train_step(model, opt, x, y) for _ in range(5)]
digest(model, losses)
