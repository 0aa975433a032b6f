"""A run that ends keeps a summary for listings, and the last thing it writes does not make that stale."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import steadytrain
from steadytrain.storage import run_summaries
from steadytrain.storage.run_summaries import summary_of


def test_a_run_keeps_a_summary_that_is_true_at_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with steadytrain.watch(model, optimizer, runs_dir=tmp_path, name="run", to=("none",)):
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(4, 2)).pow(2).mean().backward()
            optimizer.step()
    (path,) = (entry for entry in tmp_path.iterdir() if (entry / "run.json").is_file())
    monkeypatch.setattr(run_summaries, "open_index", None)
    assert (summary_of(path).ended, summary_of(path).steps) == ("finished", 3)
