"""ReduceLROnPlateau, early stopping, and the best weights restored at the end. Bare: a digest, status 0."""

import copy
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
x, y = data(rows=48)
opt = torch.optim.AdamW(model.parameters(), lr=0.05)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=2, cooldown=1)
best, best_weights, stale, history = float("inf"), None, 0, []
for epoch in range(40):
    model.train()
    for rows in torch.arange(32).split(8):
        train_step(model, opt, x[rows], y[rows])
    model.eval()
    with torch.no_grad():
        held = torch.nn.functional.mse_loss(model(x[32:]), y[32:]).item()
    scheduler.step(held)
    history.append((held, opt.param_groups[0]["lr"]))
    if held < best:
        best, best_weights, stale = held, copy.deepcopy(model.state_dict()), 0
    else:
        stale += 1
    if stale == 6:
        print("stopped early at", epoch)
        break
model.load_state_dict(best_weights)
digest(model, opt, scheduler.state_dict()["best"], history)
