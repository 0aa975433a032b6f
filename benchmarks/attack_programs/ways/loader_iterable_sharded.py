"""Streams an iterable data set that shards itself over its workers. Bare: a digest, status 0."""

import hashlib

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

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


def train_step(model, opt, x, y):
    """Take one ordinary step and give its loss."""
    opt.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    opt.step()
    return loss.item()


class Stream(IterableDataset):
    """Gives every second row to every second worker."""

    def __iter__(self):
        info = get_worker_info()
        part, parts = (info.id, info.num_workers) if info else (0, 1)
        gen = torch.Generator().manual_seed(11)
        for i in range(30):
            row = torch.randn(4, generator=gen)
            if i % parts == part:
                yield {"x": row, "y": row.prod().reshape(1), "name": f"row-{i}"}


model = net()
opt = torch.optim.Adam(model.parameters(), lr=0.01)
losses, names = [], []
for workers in (0, 2):
    for batch in DataLoader(Stream(), batch_size=4, num_workers=workers, drop_last=False):
        losses.append(train_step(model, opt, batch["x"], batch["y"]))
        names += batch["name"]
print(len(names), sorted(set(names))[:3])
digest(model, opt, losses, names)
