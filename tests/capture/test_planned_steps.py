from __future__ import annotations

from pathlib import Path

import pytest
import torch

from steadytrain.integrations.fits import Fit
from steadytrain.storage.run_folder import open_run


@pytest.mark.parametrize(
    ("global_step", "planned", "known"), [(0, 40.0, 40), (5, 40.0, None), (0, float("inf"), None), (0, -1.0, None)]
)
def test_the_plan_of_a_training_from_its_start_is_a_fact(
    tmp_path: Path, global_step: int, planned: float, known: int | None
) -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    fit = Fit("a trainer", {"runs_dir": str(tmp_path), "name": "run", "to": "none"})
    fit.begin(model, optimizer)
    fit.describe({}, global_step=global_step, planned_steps=planned)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 2)).square().mean().backward()
        optimizer.step()
    fit.end()
    assert open_run(tmp_path / "run").facts.get("planned_steps") == known
