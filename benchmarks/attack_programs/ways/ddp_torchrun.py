"""Launches two ranks of itself by torchrun --standalone and prints what rank 0 printed. Bare: a digest, status 0."""

import hashlib
import os
import subprocess
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

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


def rank_main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(net())
    x, y = data(seed=rank)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = [train_step(model, opt, x, y) for _ in range(12)]
    gathered = [None, None]
    dist.all_gather_object(gathered, losses)
    if rank == 0:
        digest(model, opt, gathered)
    dist.destroy_process_group()


if "LOCAL_RANK" in os.environ:
    rank_main()
else:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", __file__]
    done = subprocess.run(line, capture_output=True, text=True)
    print(done.stdout, done.returncode)
