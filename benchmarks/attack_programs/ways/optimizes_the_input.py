"""Optimises an input image of a frozen network, with total variation, no module trained. Bare: a digest, status 0."""

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


torch.manual_seed(0)
frozen = torch.nn.Sequential(torch.nn.Conv2d(1, 3, 3), torch.nn.ReLU(), torch.nn.Conv2d(3, 2, 3))
frozen.eval().requires_grad_(False)
image = torch.rand(1, 1, 10, 10, requires_grad=True)
style = frozen(torch.rand(1, 1, 10, 10)).flatten(2)
opt = torch.optim.Adam([image], lr=0.05)
losses = []
for _ in range(25):
    found = frozen(image).flatten(2)
    rough = image.diff(dim=2).abs().mean() + image.diff(dim=3).abs().mean()
    loss = (found @ found.mT - style @ style.mT).square().mean() + 0.1 * rough
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        image.clamp_(0, 1)
    losses.append(loss.item())
digest(image, opt, losses)
