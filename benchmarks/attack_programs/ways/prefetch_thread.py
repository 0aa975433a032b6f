"""A thread of the script's own prepares batches into a bounded queue. Bare: a digest, status 0."""

import hashlib
import queue
import threading

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


class Prefetcher:
    """Iterates in another thread; a sentinel ends it."""

    def __init__(self, batches):
        self.queue = queue.Queue(maxsize=2)
        self.thread = threading.Thread(target=self.fill, args=(batches,), daemon=True)
        self.thread.start()

    def fill(self, batches):
        for batch in batches:
            self.queue.put(batch)
        self.queue.put(None)

    def __iter__(self):
        while (batch := self.queue.get()) is not None:
            yield batch
        self.thread.join()


model = net()
x, y = data()
opt = torch.optim.SGD(model.parameters(), lr=0.05)
losses = []
for _ in range(4):
    batches = ((x[i : i + 8].clone(), y[i : i + 8].clone()) for i in range(0, 32, 8))
    losses += [train_step(model, opt, a, b) for a, b in Prefetcher(batches)]
print(threading.active_count() >= 1, threading.current_thread().name)
digest(model, losses)
