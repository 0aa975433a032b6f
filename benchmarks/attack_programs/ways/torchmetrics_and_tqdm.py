"""Metrics of torchmetrics and a progress bar on stderr with a postfix. Bare: a digest, status 0."""

import hashlib

import torch
import torchmetrics
from tqdm import tqdm

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


model = net()
x, y = data()
opt = torch.optim.SGD(model.parameters(), lr=0.05)
metrics = torchmetrics.MetricCollection([torchmetrics.MeanSquaredError(), torchmetrics.R2Score()])
losses, found = [], []
with tqdm(total=20, ascii=True) as bar:
    for _ in range(5):
        for rows in torch.arange(32).split(8):
            losses.append(train_step(model, opt, x[rows], y[rows]))
            metrics.update(model(x[rows]).detach(), y[rows])
            bar.set_postfix(loss=losses[-1])
            bar.update()
        found.append({name: value.item() for name, value in metrics.compute().items()})
        metrics.reset()
digest(model, losses, found)
