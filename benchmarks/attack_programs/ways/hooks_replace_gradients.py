"""Hooks of tensors and modules replace gradients: reversal, clipping, noise. Bare: a digest, status 0."""

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


def data(seed=1, rows=32):
    """Make the same samples and targets each time."""
    gen = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 4, generator=gen), torch.randn(rows, 1, generator=gen)


torch.manual_seed(0)
body, head, judge = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1), torch.nn.Linear(8, 2)
x, y = data()
domain = torch.arange(32) % 2
noise = torch.Generator().manual_seed(5)
body.weight.register_hook(lambda g: g.clamp(-0.01, 0.01))
head.register_full_backward_hook(lambda m, into, out: (into[0] + 1e-3 * torch.randn(8, generator=noise),))
head.register_full_backward_pre_hook(lambda m, out: (out[0] * 0.5,))
handle = judge.weight.register_hook(lambda g: g * 2)
opt = torch.optim.SGD([*body.parameters(), *head.parameters(), *judge.parameters()], lr=0.1)
losses = []
for i in range(24):
    if i == 12:
        handle.remove()
    features = body(x).tanh()
    turned = features.view_as(features)
    turned.register_hook(torch.neg)
    loss = (head(features) - y).square().mean() + torch.nn.functional.cross_entropy(judge(turned), domain)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
digest(body, head, judge, losses)
