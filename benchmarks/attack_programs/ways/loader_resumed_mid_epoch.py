"""Saves generator states and position in mid-epoch and resumes the loader there. Bare: a digest, status 0."""

import hashlib
import itertools

import torch
from torch.utils.data import DataLoader, TensorDataset

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


def loader_from(state):
    gen = torch.Generator()
    gen.set_state(state)
    return DataLoader(TensorDataset(*data(rows=40)), batch_size=4, shuffle=True, generator=gen)


def train(stop, saved=None):
    model = net()
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    shuffle = torch.Generator().manual_seed(9).get_state()
    done, losses = 0, []
    if saved:
        model.load_state_dict(saved["model"])
        opt.load_state_dict(saved["opt"])
        torch.set_rng_state(saved["rng"])
        shuffle, done = saved["shuffle"], saved["done"]
    for x, y in itertools.islice(loader_from(shuffle), done, None):
        losses.append(train_step(model, opt, x + 0.01 * torch.randn(4), y))
        done += 1
        if done == stop:
            break
    state = {"model": model.state_dict(), "opt": opt.state_dict(), "rng": torch.get_rng_state()}
    return model, losses, {**state, "shuffle": shuffle, "done": done}


whole, whole_losses, _ = train(10)
_, first, saved = train(4)
torch.save(saved, "middle.pt")
resumed, rest, _ = train(10, torch.load("middle.pt"))
print(whole_losses == first + rest)
print(all(torch.equal(p, q) for p, q in zip(whole.parameters(), resumed.parameters(), strict=True)))
digest(resumed, first, rest)
