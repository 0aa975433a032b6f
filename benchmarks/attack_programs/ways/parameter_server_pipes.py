"""Two children compute gradients and send them by pipe; the parent averages and steps. Bare: a digest, status 0."""

import hashlib
import multiprocessing as mp

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


def gradients(pipe, seed):
    model = net()
    x, y = data(seed=seed)
    while (weights := pipe.recv()) is not None:
        model.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
        model.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        pipe.send((loss.item(), [p.grad.tolist() for p in model.parameters()]))


if __name__ == "__main__":
    model = net()
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    ends, children = [], []
    for seed in (1, 2):
        here, there = mp.Pipe()
        child = mp.get_context("fork").Process(target=gradients, args=(there, seed))
        child.start()
        ends.append(here)
        children.append(child)
    losses = []
    for _ in range(15):
        for end in ends:
            end.send({name: value.tolist() for name, value in model.state_dict().items()})
        answers = [end.recv() for end in ends]
        losses.append([loss for loss, _ in answers])
        for p, *parts in zip(model.parameters(), *(grads for _, grads in answers), strict=True):
            p.grad = torch.stack([torch.tensor(part) for part in parts]).mean(0)
        opt.step()
    for end, child in zip(ends, children, strict=True):
        end.send(None)
        child.join()
    digest(model, opt, losses)
