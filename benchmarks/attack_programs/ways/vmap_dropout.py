"""Takes gradients under vmap with dropout that differs in each row and that is the same. Bare: a digest, status 0."""

import hashlib

import torch
from torch.func import functional_call, grad, vmap

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


torch.manual_seed(3)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
x, y = data(rows=8)
opt = torch.optim.SGD(model.parameters(), lr=0.05)


def loss_of(params, row, target):
    return (functional_call(model, params, (row,)) - target).square().mean()


sums = []
for i in range(20):
    params = {name: p.detach() for name, p in model.named_parameters()}
    rule = "different" if i % 2 else "same"
    grads = vmap(grad(loss_of), in_dims=(None, 0, 0), randomness=rule)(params, x, y)
    for name, p in model.named_parameters():
        p.grad = grads[name].mean(0)
    opt.step()
    sums.append(sum(g.sum().item() for g in grads.values()))
digest(model, sums)
