"""Loops for ever and saves every step; only its own SIGALRM ends it. Bare: killed by signal 14 (142)."""

import itertools
import signal

import torch

torch.set_num_threads(1)
BAD = 27


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


torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.01)


signal.setitimer(signal.ITIMER_REAL, 1.5)
for step in itertools.count():
    train_step(step)
    if step <= BAD + 12:
        torch.save({"step": step, "model": model.state_dict()}, "forever.pt")
