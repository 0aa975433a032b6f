"""Runs cells by exec in one namespace, with linecache entries and a cell that fails. Bare: a digest, status 0."""

import ast
import hashlib
import linecache
import traceback
import types

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


CELLS = [
    "import torch\nmodel = net()\nx, y = data()\nopt = torch.optim.SGD(model.parameters(), lr=0.05)\nlosses = []",
    "for _ in range(8):\n    losses.append(train_step(model, opt, x, y))\nlen(losses)",
    "model(torch.zeros(3, 3))",
    "model = net(1)  # the cell is run again\nopt = torch.optim.Adam(model.parameters(), lr=0.01)",
    "for _ in range(8):\n    losses.append(train_step(model, opt, x, y))\nround(losses[-1], 3)",
    "del opt\nlosses[0] > losses[-1]",
]
space = types.ModuleType("__console__").__dict__
space.update(net=net, data=data, train_step=train_step)
for number, cell in enumerate(CELLS):
    name = f"<cell-{number}>"
    linecache.cache[name] = (len(cell), None, cell.splitlines(True), name)
    tree = ast.parse(cell, name)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    try:
        exec(compile(tree, name, "exec"), space)
        if last is not None:
            space["_"] = eval(compile(ast.Expression(last.value), name, "eval"), space)
            print(number, space["_"])
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        print(number, type(error).__name__, [f.filename for f in frames if f.filename.startswith("<cell")])
        print(str(error)[:60], frames[1].line)
digest(space["model"], space["losses"])
