"""Parameters that a script has frozen and gives to its optimizer all the same, as fine-tuning does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import steadytrain
from steadytrain.storage.run_folder import open_run

STEPS = 160


def train(folder: Path, *, requires_grad: bool, unfreeze_at: int = STEPS + 1) -> tuple[set[str], tuple[str, ...]]:
    """What is raised above a note while one layer of three never learns, and whose gradients are on record."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    model[1].weight.requires_grad_(requires_grad)
    with steadytrain.watch(model, optimizer, runs_dir=str(folder), name="run", to="none"):
        for step in range(1, STEPS + 1):
            if step == unfreeze_at:
                model[1].weight.requires_grad_(True)
            inputs = torch.randn(16, 4)
            hidden = model[0](inputs)
            weight = model[1].weight if step >= unfreeze_at else model[1].weight.detach()
            out = model[2](nn.functional.linear(hidden, weight, model[1].bias))
            loss = (out - inputs.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    run = open_run(folder / "run")
    raised = {symptom.name for symptom in run.symptoms if symptom.severity != "note"}
    return raised, run.table("gradients").rows


@pytest.mark.parametrize("requires_grad", [True, False])
def test_frozen_on_purpose_is_no_fault_and_cut_off_is(tmp_path: Path, requires_grad: bool) -> None:
    raised, rows = train(tmp_path, requires_grad=requires_grad)
    assert ("frozen-parameters" in raised) is requires_grad
    assert ("1.weight" in rows) is requires_grad
    assert "1.bias" in rows


def test_one_that_learns_again_is_on_record_from_then_on(tmp_path: Path) -> None:
    raised, rows = train(tmp_path, requires_grad=False, unfreeze_at=100)
    assert "frozen-parameters" not in raised
    assert "1.weight" in rows
