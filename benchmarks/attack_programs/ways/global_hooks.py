"""Hooks on every module and every optimizer of the process count calls. Bare: counts, a digest, status 0."""

import hashlib

import torch
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

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


counts = {}


def count(what):
    def hook(*given):
        counts[what] = counts.get(what, 0) + 1

    return hook


handles = [
    modules.register_module_forward_pre_hook(count("before")),
    modules.register_module_forward_hook(count("after"), always_call=True),
    modules.register_module_full_backward_hook(count("backward")),
    optimizers.register_optimizer_step_pre_hook(count("step before")),
    optimizers.register_optimizer_step_post_hook(count("step after")),
    modules.register_module_module_registration_hook(count("module")),
    modules.register_module_parameter_registration_hook(count("parameter")),
]
model = net()
x, y = data()
opt = torch.optim.SGD(model.parameters(), lr=0.05)
losses = [train_step(model, opt, x, y) for _ in range(10)]
print(counts)
for handle in handles:
    handle.remove()
print(len(modules._global_forward_hooks), len(modules._global_forward_pre_hooks), len(modules._global_backward_hooks))
losses += [train_step(model, opt, x, y) for _ in range(5)]
print(counts["before"], len(model._forward_hooks), len(opt._optimizer_step_pre_hooks))
digest(model, losses)
