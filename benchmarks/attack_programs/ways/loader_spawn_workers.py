"""Loads by two spawned workers with prefetching behind a main guard. Bare: a digest, status 0."""

import hashlib

import torch
from torch.utils.data import DataLoader, Dataset

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


class Rows(Dataset):
    """Makes each row from its number and its worker's seed."""

    def __len__(self):
        return 32

    def __getitem__(self, i):
        x = torch.arange(4.0) * 0.1 + i * 0.05 + torch.rand(4)
        return x, x.sum(0, keepdim=True)


def main():
    model = net()
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    shuffle = torch.Generator().manual_seed(7)
    loader = DataLoader(
        Rows(),
        batch_size=8,
        shuffle=True,
        num_workers=2,
        multiprocessing_context="spawn",
        prefetch_factor=1,
        persistent_workers=True,
        generator=shuffle,
    )
    losses = [train_step(model, opt, x, y) for _ in range(3) for x, y in loader]
    digest(model, losses)


if __name__ == "__main__":
    main()
