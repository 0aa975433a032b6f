"""A loop that calls its model hundreds of times before one backward is guarded; its calls are not all recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from steadytrain.capture.step import model_calls
from steadytrain.capture.step.model_calls import CALLS_SPARSE, MICRO_BATCHES_MAX
from steadytrain.capture.step.run_stopped import RunStopped
from steadytrain.storage.run_folder import open_run
from watching import watching

STEPS = 4


def train(model: nn.Module, calls: int, *, nan_at: int | None = None) -> list[float]:
    """An episode of ``calls`` calls for each update, as a policy makes them."""
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for step in range(1, STEPS + 1):
        rows = [model(torch.randn(1, 3)) for _ in range(calls)]
        loss = torch.cat(rows).square().mean() * (float("nan") if step == nan_at else 1.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def model_with_buffers() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 1))


def test_training_is_the_same_and_few_calls_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = 0
    original = model_calls.record_call

    def counted(*args: object) -> object:
        nonlocal recorded
        recorded += 1
        return original(*args)  # type: ignore[arg-type]

    calls = MICRO_BATCHES_MAX + 1
    bare, watched = model_with_buffers(), model_with_buffers()
    expected = train(bare, calls)
    monkeypatch.setattr(model_calls, "record_call", counted)
    with watching(tmp_path / "run", "stop") as watcher:
        assert train(watched, calls) == expected
    assert all(torch.equal(*pair) for pair in zip(bare.parameters(), watched.parameters(), strict=True))
    assert recorded == calls + (STEPS - 1) * CALLS_SPARSE
    assert [note for note in watcher.notes if f"was called {calls} times before one backward" in note]
    assert open_run(tmp_path / "run").window().present["samples"].tolist() == [True] + [False] * (STEPS - 1)


def test_a_loop_with_fewer_calls_is_recorded_whole(tmp_path: Path) -> None:
    with watching(tmp_path / "run", "stop") as watcher:
        train(model_with_buffers(), 20)
    assert watcher.notes == []
    assert open_run(tmp_path / "run").window().signals["samples"].tolist() == [20.0] * STEPS


def test_its_updates_are_guarded(tmp_path: Path) -> None:
    model = model_with_buffers()
    with watching(tmp_path / "run", "stop") as watcher, pytest.raises(RunStopped):
        train(model, MICRO_BATCHES_MAX + 1, nan_at=STEPS)
    assert len(watcher.incidents) == 1
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())
