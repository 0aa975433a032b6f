"""A probe of shapes or of operations on the meta device is no training: no call and no backward of a step."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from steadytrain.storage.run_folder import open_run
from watching import watching


def test_a_probe_on_the_meta_device_leaves_the_first_step_guarded(tmp_path: Path) -> None:
    with watching(tmp_path / "run", "stop") as watcher:
        with torch.device("meta"):
            probe = nn.Linear(4, 1)
            torch.optim.SGD(probe.parameters(), lr=0.1)
            probe(torch.ones(2, 4)).sum().backward()
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
    assert watcher.notes == []
    window = open_run(tmp_path / "run").window()
    assert window.steps.tolist() == [1, 2, 3]
    assert window.signals["samples"].tolist() == [2.0] * 3
    assert bool(torch.isfinite(torch.tensor(window.signals["loss"])).all())
