"""Trains through an operator of torch.library with a fake and an autograd formula. Bare: a digest, status 0."""

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


def train_step(model, opt, x, y):
    """Take one ordinary step and give its loss."""
    opt.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    opt.step()
    return loss.item()


@torch.library.custom_op("mine::bend", mutates_args=())
def bend(x: torch.Tensor, power: float) -> torch.Tensor:
    return x.sign() * x.abs() ** power


@bend.register_fake
def _(x, power):
    return torch.empty_like(x)


def keep(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])
    ctx.power = inputs[1]


def slope(ctx, grad):
    (x,) = ctx.saved_tensors
    return grad * ctx.power * x.abs().clamp_min(1e-3) ** (ctx.power - 1), None


bend.register_autograd(slope, setup_context=keep)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)

    def forward(self, x):
        return self.two(torch.ops.mine.bend(self.one(x), 1.5))


torch.manual_seed(0)
model = Net()
x, y = data()
opt = torch.optim.SGD(model.parameters(), lr=0.02)
losses = [train_step(model, opt, x, y) for _ in range(10)]
compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
losses += [train_step(compiled, opt, x, y) for _ in range(10)]
digest(model, losses)
