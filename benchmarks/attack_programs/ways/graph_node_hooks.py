"""Hooks on graph nodes and several gradients at once record the order of a backward pass. Bare: a digest, status 0."""

import hashlib

import torch
from torch.autograd import graph

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


model = net()
x, y = data()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
names = []
losses = []
for i in range(10):
    out = model(x)
    loss = torch.nn.functional.mse_loss(out, y)
    node = loss.grad_fn
    while node is not None:
        name = node.name()
        node.register_prehook(lambda grads, name=name: names.append(name))
        node.register_hook(lambda into, out, name=name: names.append((name, len(into), len(out))))
        node = node.next_functions[0][0] if node.next_functions else None
    graph.register_multi_grad_hook(tuple(model.parameters()), lambda grads: names.append(len(grads)))
    first = graph.register_multi_grad_hook(list(model.parameters()), lambda g: names.append("any"), mode="any")
    opt.zero_grad()
    loss.backward()
    opt.step()
    first.remove()
    losses.append(loss.item())
    if i == 0:
        print(names, out.grad_fn.name(), len(out.grad_fn.next_functions))
digest(model, losses, names)
