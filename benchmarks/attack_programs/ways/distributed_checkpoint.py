"""Saves and loads by torch.distributed.checkpoint in one process and trains on. Bare: a digest, status 0."""

import hashlib
import tempfile
import warnings

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

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


warnings.simplefilter("ignore")
x, y = data()
model = net()
opt = torch.optim.AdamW(model.parameters(), lr=0.01)
losses = [train_step(model, opt, x, y) for _ in range(8)]
with tempfile.TemporaryDirectory() as folder:
    weights, state = get_state_dict(model, opt)
    dcp.save({"model": weights, "opt": state}, checkpoint_id=folder, no_dist=True)
    other = net(5)
    other_opt = torch.optim.AdamW(other.parameters(), lr=0.5)
    weights, state = get_state_dict(other, other_opt)
    loaded = {"model": weights, "opt": state}
    dcp.load(loaded, checkpoint_id=folder, no_dist=True)
    set_state_dict(other, other_opt, model_state_dict=loaded["model"], optim_state_dict=loaded["opt"])
losses += [train_step(other, other_opt, x, y) for _ in range(8)]
digest(model, other, losses)
