"""Reads options by argparse and its settings from standard input. Bare: what it read, a digest, status 0."""

# Arguments: --steps 14 --rate=0.05 -m adam -- --policy stop
# Input: {"momentum": 0.5, "name": "from stdin"}

import argparse
import hashlib
import json
import os
import sys

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


def net(seed=0):
    """Make the same small network each time."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


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


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, required=True)
parser.add_argument("--rate", type=float)
parser.add_argument("-m", "--method", choices=["sgd", "adam"])
parser.add_argument("rest", nargs="*")
options = parser.parse_args()
settings = json.load(sys.stdin)
print(options, settings, parser.prog, os.path.basename(sys.argv[0]), len(sys.argv))
print(__name__, os.path.basename(__file__), __spec__, __package__)
print(sys.path[0] == os.path.dirname(os.path.abspath(__file__)))
model = net()
x, y = data()
opt = torch.optim.Adam(model.parameters(), lr=options.rate, betas=(settings["momentum"], 0.99))
losses = [train_step(model, opt, x, y) for _ in range(options.steps)]
digest(model, opt, losses)
