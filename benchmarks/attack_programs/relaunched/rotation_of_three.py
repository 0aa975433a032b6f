"""Keeps its last three checkpoints and a best one, as a trainer does. Bare: status 0."""

import os
import re
import shutil

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


best = float("inf")
for step in range(BAD + 12):
    loss = train_step(step)
    os.makedirs(f"out/checkpoint-{step}", exist_ok=True)
    torch.save(model.state_dict(), f"out/checkpoint-{step}/model.pt")
    kept = sorted((int(re.sub(r"\D", "", d)) for d in os.listdir("out") if d.startswith("checkpoint-")), reverse=True)
    for old in kept[3:]:
        shutil.rmtree(f"out/checkpoint-{old}")
    if loss < best:
        best = loss
        shutil.copytree(f"out/checkpoint-{step}", "out/best", dirs_exist_ok=True)
