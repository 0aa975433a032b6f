"""A model that is called inside of ``vmap`` and ``grad`` is guarded, and the tape says why it lacks its steps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

import steadytrain
from steadytrain.replay.recorded_steps import RecordedSteps
from steadytrain.storage.tape_files import find_recording


def score_matching(steps: int) -> list[float]:
    """Learn the gradient of a log density, taken row by row."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 16), nn.Softplus(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        rows = torch.randn(32, 2)
        held = dict(model.named_parameters())

        def of_row(row: Tensor, held: dict[str, Tensor] = held) -> Tensor:
            return functional_call(model, held, (row,)).squeeze()

        loss = (vmap(grad(of_row))(rows) + rows).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_no_part_of_the_watch_fails_and_the_steps_are_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = score_matching(40)
    with steadytrain.watch(runs_dir=tmp_path, name="run", keep_rewind=True):
        watched = score_matching(40)
    assert watched == bare
    assert "failed" not in capsys.readouterr().err
    step = RecordedSteps(find_recording(tmp_path / "run")).step(5)
    assert step is not None
    assert "inside of a transform" in step.document["left_out"]
