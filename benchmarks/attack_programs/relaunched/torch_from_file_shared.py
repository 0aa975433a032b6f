"""Trains weights that live in a shared file by torch.from_file. Bare: status 0."""

import torch

torch.set_num_threads(1)
BAD = 34


def batch(step):
    """Make one batch; the one of step BAD holds a NaN."""
    gen = torch.Generator().manual_seed(step)
    x, y = torch.randn(8, 4, generator=gen), torch.randn(8, 1, generator=gen)
    if step == BAD:
        x[3, 2] = float("nan")
    return x, y


def train_step(step):
    """Take one step and give its loss."""
    x, y = batch(step)
    opt.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    opt.step()
    return loss.item()


model = torch.nn.Linear(4, 1)
with torch.no_grad():
    shared = torch.from_file("weights.raw", shared=True, size=4)
    shared.copy_(torch.arange(4) / 10)
    model.weight = torch.nn.Parameter(shared.view(1, 4))
    model.bias.zero_()
opt = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(BAD + 12):
    train_step(step)
