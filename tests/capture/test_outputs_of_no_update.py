"""Outputs of a batch that led to no update: they belong to that step, or to none."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import run_script

SCRIPT = """
    import sys

    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    rows = torch.randn(320, 8)
    rows[123, 2] = float("inf")
    for step in range(40):
        batch = rows[8 * step : 8 * step + 8]
        loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
        if "continues" in sys.argv and not torch.isfinite(loss):
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize("level", ["standard", "full"])
def test_a_skipped_update_has_its_outputs_at_its_own_step(level: str, tmp_path: Path) -> None:
    run = run_script(tmp_path, SCRIPT, "--policy", "skip", "--level", level).run
    found = {one.name: one for one in run.symptoms}
    assert found["nonfinite-loss"].first_step == 16
    assert {one.first_step for one in run.symptoms if one.name == "nonfinite-activation"} == {16}
    assert "the loss stayed finite" not in found["nonfinite-activation"].message


def test_outputs_of_a_batch_that_the_script_left_out_belong_to_no_step(tmp_path: Path) -> None:
    run = run_script(tmp_path, SCRIPT, arguments=("continues",)).run
    assert [one.name for one in run.symptoms] == ["nonfinite-loss"]
    assert 16 in run.table("modules").steps, "the next batch is measured in its place"
