"""Runs a dozen schedulers, chained and sequential too, and prints the rates. Bare: a digest, status 0."""

import hashlib

import torch
from torch.optim import lr_scheduler as kinds

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


def make(name, opt):
    if name == "one-cycle":
        return kinds.OneCycleLR(opt, max_lr=0.1, total_steps=20)
    if name == "cyclic":
        return kinds.CyclicLR(opt, 0.01, 0.1, step_size_up=4)
    if name == "sequential":
        parts = [kinds.LinearLR(opt, 0.1, total_iters=5), kinds.CosineAnnealingLR(opt, 15)]
        return kinds.SequentialLR(opt, parts, milestones=[5])
    if name == "chained":
        return kinds.ChainedScheduler([kinds.ConstantLR(opt, 0.5, 4), kinds.ExponentialLR(opt, 0.9)])
    if name == "lambda":
        return kinds.LambdaLR(opt, [lambda e: 0.95**e, lambda e: 1 / (e + 1)])
    if name == "multiplicative":
        return kinds.MultiplicativeLR(opt, lambda e: 0.97)
    if name == "warm-restarts":
        return kinds.CosineAnnealingWarmRestarts(opt, T_0=3, T_mult=2)
    if name == "polynomial":
        return kinds.PolynomialLR(opt, total_iters=15, power=2)
    return kinds.MultiStepLR(opt, [5, 9, 12], gamma=0.3)


x, y = data()
names = ["one-cycle", "cyclic", "sequential", "chained", "lambda", "multiplicative", "warm-restarts", "polynomial"]
names.append("steps")
for name in names:
    model = net()
    groups = [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.02}]
    opt = torch.optim.SGD(groups, lr=0.05, momentum=0.9)
    scheduler = make(name, opt)
    losses, rates = [], []
    for _ in range(20):
        losses.append(train_step(model, opt, x, y))
        rates.append(scheduler.get_last_lr())
        if _ < 19:
            scheduler.step()
    print(name)
    digest(model, opt, losses, rates)
