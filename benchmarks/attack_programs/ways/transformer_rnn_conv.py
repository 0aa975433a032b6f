"""Trains a transformer layer, an LSTM and a convolution in one model. Bare: a digest, status 0."""

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
a = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
b, c = torch.nn.LSTM(8, 8, batch_first=True), torch.nn.Conv1d(8, 2, 3)
opt = torch.optim.AdamW([*a.parameters(), *b.parameters(), *c.parameters()])
x = torch.randn(4, 6, 8)
losses = []
for _ in range(5):
    opt.zero_grad()
    loss = c(b(a(x))[0].transpose(1, 2)).pow(2).mean()
    loss.backward()
    opt.step()
    losses.append(loss.item())
digest(a, b, c, opt, losses)
