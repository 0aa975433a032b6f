"""Recomputes by a policy for each operator, and by checkpoint_sequential. Bare: a digest, status 0."""

import hashlib
from functools import partial

import torch
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
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


def data(seed=1, rows=32):
    """Make the same samples and targets each time."""
    gen = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 4, generator=gen), torch.randn(rows, 1, generator=gen)


def policy(ctx, op, *args, **kwargs):
    kept = op == torch.ops.aten.addmm.default
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


torch.manual_seed(0)
blocks = [torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.Dropout(0.1)) for _ in range(4)]
model = torch.nn.Sequential(*blocks, torch.nn.Linear(4, 1))
x, y = data()
opt = torch.optim.SGD(model.parameters(), lr=0.05)
losses = []
for i in range(16):
    opt.zero_grad()
    if i % 2:
        chosen = partial(create_selective_checkpoint_contexts, policy)
        out = model[4](checkpoint(model[:4], x, use_reentrant=False, context_fn=chosen))
    else:
        out = checkpoint_sequential(model, 3, x, use_reentrant=False)
    loss = torch.nn.functional.mse_loss(out, y)
    loss.backward()
    opt.step()
    losses.append(loss.item())
digest(model, losses)
