"""Targets of squared errors: what a constant costs, and noise that the model was not given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor, nn

from steadytrain.capture.looks.regression_targets import RegressionTargets
from watching import watching

ROWS, WIDTH = 64, 32
Batch = Callable[[], tuple[Tensor, Tensor]]


def noised(level: float) -> tuple[Tensor, Tensor]:
    clean, noise = torch.rand(ROWS, WIDTH), torch.randn(ROWS, WIDTH)
    return (1.0 - level) * clean + level * noise, noise


def drawn_twice() -> tuple[Tensor, Tensor]:
    return noised(0.5)[0], torch.randn(ROWS, WIDTH)


def unrelated_labels() -> tuple[Tensor, Tensor]:
    return torch.randn(ROWS, WIDTH), 3.0 + 0.1 * torch.rand(ROWS, 1)


def told(batch: Batch, folder: Path, *, steps: int = 240) -> dict[str, str]:
    torch.manual_seed(0)
    width = batch()[1].shape[1]
    model = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, width))
    with watching(folder, "observe") as watcher:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(steps):
            x, target = batch()
            optimizer.zero_grad()
            F.mse_loss(model(x), target).backward()
            optimizer.step()
    return {one.name: one.severity for one in watcher.symptoms if one.name in ("unrelated-noise", "no-learning")}


def test_noise_that_is_drawn_twice(tmp_path: Path) -> None:
    assert told(drawn_twice, tmp_path) == {"unrelated-noise": "warning", "no-learning": "warning"}


@pytest.mark.parametrize("level", [0.1, 0.9])
def test_noise_that_the_model_is_given(level: float, tmp_path: Path) -> None:
    assert told(lambda: noised(level), tmp_path, steps=80).get("unrelated-noise") is None


@pytest.mark.parametrize(
    ("predicts", "draw", "found"),
    [("noise", torch.rand, True), ("noise", torch.randn, False), ("data", torch.rand, False)],
)
def test_noise_between_0_and_1(predicts: str, draw: Callable[..., Tensor], found: bool) -> None:
    """Inputs at late times hold more of the noise, and less of the data."""
    torch.manual_seed(0)
    time, noise, data = torch.randint(100, (ROWS,)), draw(ROWS, WIDTH), torch.rand(ROWS, WIDTH)
    share = time[:, None] / 100
    call: Any = SimpleNamespace(args=((1 - share) * data + share * noise, time), kwargs={})
    target = noise if predicts == "noise" else data
    value = dict(RegressionTargets().rows([target], call)).get("uniform-noise")
    assert (value is not None and value > 0.15) is found


def test_a_target_of_which_only_the_mean_is_learned(tmp_path: Path) -> None:
    assert "unrelated-noise" not in told(unrelated_labels, tmp_path)


def test_the_variance_is_that_of_each_element_over_all_rows() -> None:
    torch.manual_seed(0)
    targets, batches = RegressionTargets(), [torch.randn(40, 3) * torch.tensor([1.0, 2.0, 0.0]) + 5.0 for _ in range(3)]
    found = [dict(targets.rows([one], None)) for one in batches]
    assert found[0] == {}  # too few rows
    torch.testing.assert_close(found[-1]["target-variance"], float(torch.cat(batches).double().var(0).mean()))
    assert dict(targets.rows([batches[0], batches[1]], None)) == {}
    assert dict(targets.rows([torch.ones(100, 2)], None)) == {}


def test_what_another_column_tells_is_not_unrelated() -> None:
    code = torch.randn(256, 8)
    mixed = code @ torch.linalg.qr(torch.randn(8, 8))[0].T
    shifted = code.roll(1, dims=1)
    for given in (mixed, shifted):
        call: Any = SimpleNamespace(args=(given,), kwargs={})
        assert dict(RegressionTargets().rows([code], call))["noise-correlation"] > 5.0
    call = SimpleNamespace(args=(torch.randn(256, 8),), kwargs={})
    assert dict(RegressionTargets().rows([code], call))["noise-correlation"] < 5.0
