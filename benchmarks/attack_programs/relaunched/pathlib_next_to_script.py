"""Writes, renames and unlinks by pathlib in the script's own folder every step. Bare: status 0."""

from pathlib import Path

import torch

torch.set_num_threads(1)
HERE = Path(__file__).resolve().parent

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


for step in range(BAD + 12):
    loss = train_step(step)
    new = HERE / "state.new.txt"
    new.write_text(f"{step} {loss!r}\n")
    new.replace(HERE / "state.txt")
    (HERE / "raw.bin").write_bytes(bytes(model.weight.detach().view(torch.uint8).reshape(-1).tolist()))
    (HERE / "tmp_mark").touch()
    (HERE / "tmp_mark").unlink()
