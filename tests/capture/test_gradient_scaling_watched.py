"""Scaler, clipping and waiting for data as a watched run records them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.utils.data import DataLoader, IterableDataset

from steadytrain.capture.step.watcher import Watcher
from steadytrain.core.model import Window
from steadytrain.storage.run_folder import open_run
from waiting import until
from watching import watching

SCALE = 1024.0
STEPS = 4


def train(*, unscale: bool | None, clip: Any, limit: float, huge_at: int = 0) -> None:
    """``unscale`` None: without a scaler."""
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    scaler = GradScaler("cpu", init_scale=SCALE, enabled=unscale is not None)
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 8)).pow(2).mean() * (1e38 if step == huge_at else 1.0)
        scaler.scale(loss).backward()
        if unscale:
            scaler.unscale_(optimizer)
        clip(model.parameters(), limit)
        scaler.step(optimizer)
        scaler.update()


def watched(folder: Path, **how: Any) -> tuple[Window, Watcher]:
    with watching(folder / "run", "observe") as watcher:
        train(**{"clip": nn.utils.clip_grad_norm_, **how})  # looked up here, so it is the watched one
    return open_run(folder / "run").window(), watcher


def values(window: Window, signal: str) -> list[float]:
    return window.series(signal).values.tolist()


def test_without_a_scaler(tmp_path: Path) -> None:
    window, watcher = watched(tmp_path, unscale=None, limit=0.01)
    assert [values(window, name) for name in ("loss_scale", "scaler_skips")] == [[], []]
    assert values(window, "clip_count") == [1.0, 2.0, 3.0, 4.0]
    before, applied = values(window, "gradient_norm"), values(window, "gradient_norm_applied")
    expected = [after / norm for norm, after in zip(before, applied, strict=True)]
    assert values(window, "clip_coefficient") == pytest.approx(expected, rel=1e-5)
    assert values(window, "overflow_share") == [0.0] * STEPS
    assert watcher.notes == []


def test_clipping_that_changes_nothing(tmp_path: Path) -> None:
    window, _ = watched(tmp_path, unscale=True, limit=1e6)
    assert values(window, "clip_coefficient") == [1.0] * STEPS
    assert values(window, "clip_count") == [0.0] * STEPS


@pytest.mark.parametrize("name", ["clip_grad_norm_", "clip_grad_value_"])
def test_the_right_order_and_the_wrong_one(name: str, tmp_path: Path) -> None:
    def clip(parameters: Iterator[Tensor], limit: float) -> None:
        getattr(nn.utils, name)(parameters, limit)  # looked up when it is called, as a script does

    right, watcher = watched(tmp_path / "right", unscale=True, clip=clip, limit=0.01)
    assert (values(right, "loss_scale"), values(right, "scaler_skips")) == ([SCALE] * STEPS, [0.0] * STEPS)
    assert watcher.notes == []
    wrong, watcher = watched(tmp_path / "wrong", unscale=False, clip=clip, limit=0.01)
    (note,) = watcher.notes
    assert "call scaler.unscale_(optimizer) before clipping" in note
    assert open_run(tmp_path / "wrong" / "run").facts["clipped_before_unscaling"] == STEPS
    # Both tell the norm of the true gradients, whatever was on them when they were clipped.
    assert values(wrong, "gradient_norm")[0] == pytest.approx(values(right, "gradient_norm")[0], rel=0.5)
    coefficients = values(wrong, "clip_coefficient")[0], values(right, "clip_coefficient")[0]
    assert coefficients[0] < coefficients[1] / 100


def test_a_step_that_the_scaler_skips(tmp_path: Path) -> None:
    window, _ = watched(tmp_path, unscale=True, limit=1e6, huge_at=2)
    assert window.skipped.tolist() == [False, True, False, False]
    assert values(window, "scaler_skips") == [0.0, 1.0, 1.0, 1.0]
    assert values(window, "loss_scale") == [SCALE, SCALE, SCALE / 2, SCALE / 2]
    assert window.present["clip_coefficient"].tolist() == [True, False, True, True]
    shares = values(window, "overflow_share")
    assert shares[1] > 0.0
    assert [shares[0], *shares[2:]] == [0.0] * 3


def test_underflow_is_looked_at_with_the_weights(tmp_path: Path) -> None:
    window, _ = watched(tmp_path, unscale=True, limit=1e6)
    assert window.present["underflow_share"].tolist() == window.present["parameter_norm"].tolist()


class Slow(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        for _ in range(2):
            time.sleep(0.03)
            yield torch.ones(8)


def test_seconds_spent_waiting_for_data(tmp_path: Path) -> None:
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watching(tmp_path / "run", "observe"):
        for _ in range(2):
            for batch in DataLoader(Slow(), batch_size=1):
                optimizer.zero_grad()
                model(batch).sum().backward()
                optimizer.step()
        model(torch.ones(1, 8)).sum().backward()
        optimizer.step()
    window = open_run(tmp_path / "run").window()
    waited, lasted = values(window, "data_wait_s"), values(window, "step_s")
    assert all(0.03 <= waiting <= step for waiting, step in zip(waited[:4], lasted[:4], strict=True))
    assert waited[4] == 0.0


def test_number_formats_and_the_machine_are_on_record(tmp_path: Path) -> None:
    model = nn.Linear(8, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    with watching(tmp_path / "run", "observe") as watcher:
        for _ in range(2):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                output = model(torch.ones(2, 8))
            output.float().sum().backward()
            optimizer.step()
            until(lambda: watcher.recorder.machine_samples)  # a reading waits for the next step
    run = open_run(tmp_path / "run")
    precision = run.facts["precision"]
    assert (precision["autocast"], precision["logits"]) == ({"cpu": "torch.bfloat16"}, "torch.bfloat16")
    assert precision["optimizer_state"] == {"torch.float32": 18}
    assert run.facts["machine"]["host"]["cores"] >= 1
    assert len(run.table("machine").series("host", "process_memory_bytes")) >= 1
