"""Appends to a zip file and writes a tar file over every step. Bare: status 0."""

import io
import tarfile
import zipfile

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
    text = f"{step} {train_step(step)!r}\n".encode()
    with zipfile.ZipFile("steps.zip", "a") as out:
        out.writestr(zipfile.ZipInfo(f"{step}_{len(out.namelist())}.txt"), text)
    with tarfile.open("last.tar", "w") as out:
        info = tarfile.TarInfo("last.txt")
        info.size = len(text)
        out.addfile(info, io.BytesIO(text))
