"""Writes by cp, by a shell redirect and by a Python child. Bare: status 0."""

import subprocess
import sys

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


torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.01)


for step in range(BAD + 8):
    loss = train_step(step)
    with open("now.txt", "w") as out:
        out.write(repr(loss))
    subprocess.run(["cp", "now.txt", "by_cp.txt"], check=True)
    subprocess.run(f"echo {step} >> by_shell.txt; mv by_cp.txt moved.txt", shell=True, check=True)
    if step % 20 == 0:
        subprocess.run([sys.executable, "-c", f"open('by_python.txt', 'w').write('{step}')"], check=True)
