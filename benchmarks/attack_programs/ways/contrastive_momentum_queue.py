"""Contrastive learning with a momentum encoder and a queue in a buffer. Bare: a digest, status 0."""

import copy
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


class Momentum(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.query = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        self.key = copy.deepcopy(self.query).requires_grad_(False)
        self.register_buffer("queue", torch.nn.functional.normalize(torch.randn(16, 3), dim=1))
        self.register_buffer("at", torch.zeros((), dtype=torch.long))

    def forward(self, one, other):
        q = torch.nn.functional.normalize(self.query(one), dim=1)
        with torch.no_grad():
            for p, k in zip(self.query.parameters(), self.key.parameters(), strict=True):
                k.mul_(0.9).add_(p, alpha=0.1)
            k = torch.nn.functional.normalize(self.key(other), dim=1)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ self.queue.clone().T], dim=1) / 0.2
        with torch.no_grad():
            at = int(self.at)
            self.queue[at : at + 8] = k
            self.at.fill_((at + 8) % 16)
        return torch.nn.functional.cross_entropy(logits, torch.zeros(8, dtype=torch.long))


torch.manual_seed(0)
model = Momentum()
opt = torch.optim.SGD(model.query.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
losses = []
for _ in range(20):
    x = torch.randn(8, 4)
    loss = model(x + 0.1 * torch.randn(8, 4), x + 0.1 * torch.randn(8, 4))
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
digest(model, opt, losses)
