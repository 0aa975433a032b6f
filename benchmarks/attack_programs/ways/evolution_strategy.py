"""Evolves weights by noise and ranks, without gradients, under inference mode. Bare: a digest, status 0."""

import hashlib

import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

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


model = net().requires_grad_(False)
x, y = data()
gen = torch.Generator().manual_seed(2)
centre = parameters_to_vector(model.parameters()).clone()
losses = []
for _ in range(20):
    noise = torch.randn(12, len(centre), generator=gen)
    scores = []
    for row in noise:
        vector_to_parameters(centre + 0.05 * row, model.parameters())
        with torch.inference_mode():
            scores.append(-torch.nn.functional.mse_loss(model(x), y).item())
    ranks = torch.tensor(scores).argsort().argsort().float() / 11 - 0.5
    centre += 0.05 * (ranks @ noise)
    losses.append(max(scores))
vector_to_parameters(centre, model.parameters())
digest(model, losses)
