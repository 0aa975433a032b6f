"""Resumes from resume.pt if it is there and trains 40 further steps. Bare: status 0."""

import os

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


start = 0
if os.path.exists("resume.pt"):
    kept = torch.load("resume.pt")
    model.load_state_dict(kept["model"])
    opt.load_state_dict(kept["opt"])
    start = kept["step"] + 1
for step in range(start, start + 40):
    train_step(step)
    torch.save({"step": step, "model": model.state_dict(), "opt": opt.state_dict()}, "resume.pt")
