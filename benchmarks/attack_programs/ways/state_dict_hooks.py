"""Hooks of modules and optimizers rename and add entries when states are saved and loaded. Bare: a digest, status 0."""

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


seen = []


def rename(module, state, prefix, metadata):
    for name in [name for name in state if name.endswith("weight")]:
        state[name[: -len("weight")] + "kernel"] = state.pop(name)
    metadata["renamed"] = True


def rename_back(module, state, *rest):
    for name in [name for name in state if name.endswith("kernel")]:
        state[name[: -len("kernel")] + "weight"] = state.pop(name)
    seen.append(len(state))


x, y = data()
model = net()
model.register_state_dict_post_hook(rename)
model.register_load_state_dict_pre_hook(rename_back)
model.register_state_dict_pre_hook(lambda *given: seen.append("saving"))
model.register_load_state_dict_post_hook(lambda module, wrong: seen.append(len(wrong.missing_keys)))
opt = torch.optim.Adam(model.parameters(), lr=0.01)
opt.register_state_dict_post_hook(lambda opt, state: {**state, "note": "mine"})
opt.register_load_state_dict_pre_hook(lambda opt, state: {k: v for k, v in state.items() if k != "note"})
losses = []
for _ in range(4):
    losses += [train_step(model, opt, x, y) for _ in range(4)]
    saved, state = model.state_dict(), opt.state_dict()
    print(sorted(saved), sorted(state))
    model.load_state_dict(saved)
    opt.load_state_dict(state)
digest(dict(model.named_parameters()), opt, losses, seen)
