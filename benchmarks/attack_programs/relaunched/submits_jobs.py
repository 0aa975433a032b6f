"""Submits a job by a detached child at the NaN, which writes a queue file. Bare: status 0."""

import math
import subprocess

import torch

torch.set_num_threads(1)
BAD = 20


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


submitted = []
for step in range(BAD + 6):
    if math.isnan(train_step(step)) and len(submitted) < 3:
        line = f"echo job of step {step} >> queue.txt; mkdir -p jobs; echo {step} > jobs/{step}.sh"
        submitted.append(subprocess.Popen(["sh", "-c", line], start_new_session=True))
        submitted[-1].wait()
