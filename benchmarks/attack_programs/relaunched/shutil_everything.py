"""Copies, moves, removes trees and makes archives by shutil every step. Bare: status 0."""

import os
import shutil

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


for step in range(BAD + 12):
    loss = train_step(step)
    shutil.rmtree("work", ignore_errors=True)
    os.makedirs("work/deep")
    torch.save(model.state_dict(), "work/deep/model.pt")
    shutil.copy("work/deep/model.pt", "copy.pt")
    shutil.copytree("work", "tree", dirs_exist_ok=True)
    shutil.make_archive("archive", "tar", "work")
    shutil.move("copy.pt", "moved.pt")
