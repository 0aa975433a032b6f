"""Two ranks from torch.multiprocessing.spawn train by DDP on gloo with a sampler. Bare: a digest, status 0."""

import hashlib
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

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


def rank_main(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    model = DistributedDataParallel(net())
    opt = torch.optim.AdamW(model.parameters(), lr=0.01)
    rows = TensorDataset(*data(rows=48))
    sampler = DistributedSampler(rows, seed=3)
    losses = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(rows, batch_size=6, sampler=sampler):
            losses.append(train_step(model, opt, x, y))
    shared = torch.tensor(losses, dtype=torch.float64)
    dist.all_reduce(shared)
    dist.barrier()
    if rank == 0:
        digest(model, opt, losses, shared)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_main, args=(folder,), nprocs=2)
