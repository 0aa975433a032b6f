"""Weighted and batch samplers, random_split, concatenation and a collate function. Bare: a digest, status 0."""

import hashlib

import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)

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


def collate(rows):
    xs, ys = zip(*rows, strict=True)
    return {"x": torch.stack(xs).flip(0), "y": torch.stack(ys).flip(0)}


whole = ConcatDataset([TensorDataset(*data(1, 24)), TensorDataset(*data(2, 24))])
train, held = random_split(whole, [40, 8], generator=torch.Generator().manual_seed(3))
weights = torch.arange(1.0, 41.0)
weighted = WeightedRandomSampler(weights, 40, generator=torch.Generator().manual_seed(4))
model = net()
opt = torch.optim.RMSprop(model.parameters(), lr=0.01)
losses = []
for _ in range(3):
    for batch in DataLoader(train, batch_size=8, sampler=weighted, collate_fn=collate):
        losses.append(train_step(model, opt, batch["x"], batch["y"]))
    for batch in DataLoader(train, batch_sampler=BatchSampler(SequentialSampler(train), 13, False), collate_fn=collate):
        losses.append(train_step(model, opt, **batch))
    with torch.no_grad():
        for x, y in DataLoader(held, batch_size=None):
            losses.append((model(x) - y).square().item())
digest(model, opt, losses)
