"""A child that the script forks, and that ends by itself, neither ends the run nor speaks for it."""

from __future__ import annotations

from pathlib import Path

from scripts import run_script

SCRIPT = """
    import os

    import torch

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 2:
            child = os.fork()
            if child == 0:
                raise FileExistsError("of the child")
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_the_parent_alone_ends_the_run(tmp_path: Path) -> None:
    ended = run_script(tmp_path, SCRIPT)
    assert ended.status == 0
    assert ended.out.split() == ["1"]
    assert ended.err.count("FileExistsError: of the child") == 1
    assert ended.err.count("steps seen") == 1
    assert (ended.run.ended, ended.run.steps) == ("finished", 6)
