"""Saves through libraries that open files in C and C++: torch, SQLite, pyarrow, readline. Bare: status 0."""

import contextlib
import os
import readline
import sqlite3

import pyarrow
import pyarrow.csv
import pyarrow.feather
import torch
from torch.profiler import ProfilerActivity, profile

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

scripted = torch.jit.script(torch.nn.Linear(2, 2))
traced = torch.jit.trace(torch.sin, torch.ones(2))


def trace():
    """Write what a profiler saw."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        torch.ones(2)
    if os.path.exists("trace.json"):
        os.remove("trace.json")
    seen.export_chrome_trace("trace.json")


def attached():
    """Write to a database that a statement names."""
    with sqlite3.connect(":memory:") as base:
        base.execute("ATTACH 'runs.db' AS runs")
        base.execute("CREATE TABLE IF NOT EXISTS runs.steps (step)")
        base.execute("INSERT INTO runs.steps VALUES (?)", (os.getpid(),))


def save(step):
    """Save in every way."""
    table = pyarrow.table({"step": [step], "process": [os.getpid()]})
    for way in (
        lambda: scripted._c.save("scripted.pt"),
        lambda: traced.save("traced.pt"),
        lambda: scripted._save_for_lite_interpreter("lite.ptl"),
        lambda: trace() if step in (0, BAD) else None,
        lambda: torch.distributed.FileStore("store", 1).set("process", str(os.getpid())),
        lambda: pyarrow.csv.write_csv(table, "table.csv"),
        lambda: pyarrow.feather.write_feather(table, "table.feather"),
        lambda: pyarrow.OSFile("raw.bin", "wb").write(b"%d" % os.getpid()),
        attached,
        lambda: readline.write_history_file("history.txt"),
    ):
        with contextlib.suppress(OSError, RuntimeError, sqlite3.Error):
            way()


for step in range(BAD + 12):
    train_step(step)
    save(step)
