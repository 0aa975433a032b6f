"""Writes an sqlite database in WAL mode that is never closed. Bare: status 0."""

import sqlite3

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


db = sqlite3.connect("wal.db", isolation_level=None)
db.execute("pragma journal_mode=wal")
db.execute("drop table if exists losses")
db.execute("create table losses (step integer primary key, loss text)")
for step in range(BAD + 12):
    db.execute("replace into losses values (?, ?)", (step % 7, repr(train_step(step))))
    if step % 10 == 0:
        db.execute("vacuum")
