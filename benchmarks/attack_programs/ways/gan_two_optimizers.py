"""Trains a generator and a discriminator in turn, several steps each. Bare: a digest, status 0."""

import hashlib

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


torch.manual_seed(0)
g, d = torch.nn.Linear(2, 4), torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
og, od = torch.optim.Adam(g.parameters(), lr=1e-2), torch.optim.Adam(d.parameters(), lr=1e-2)
x, _ = data()
bce = torch.nn.BCEWithLogitsLoss()
losses = []
for _ in range(8):
    for _ in range(2):
        od.zero_grad()
        fake = g(torch.randn(32, 2)).detach()
        ld = bce(d(x), torch.ones(32, 1)) + bce(d(fake), torch.zeros(32, 1))
        ld.backward()
        od.step()
    og.zero_grad()
    lg = bce(d(g(torch.randn(32, 2))), torch.ones(32, 1))
    lg.backward()
    og.step()
    losses += [ld.item(), lg.item()]
digest(g, d, og, od, losses)
