"""What the graph of a loss shows of the shapes that met in it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch.nn import functional  # noqa: E402

from steadytrain.capture.looks.loss_graph import read_graph  # noqa: E402

ROWS = 8
PREDICTED = torch.randn(ROWS, 1)
ROW, COLUMN, TABLE = torch.randn(ROWS), torch.randn(ROWS, 1), torch.randn(ROWS, ROWS)

MADE: dict[str, tuple[Callable[[Tensor], Tensor], dict[str, float]]] = {
    "column and row": (lambda out: functional.mse_loss(out, ROW), {"broadcast-column": 1.0, "broadcast-targets": 1.0}),
    "targets first": (lambda out: functional.mse_loss(ROW, out), {"broadcast-column": 1.0, "broadcast-targets": 1.0}),
    "row and column": (
        lambda out: functional.mse_loss(out[:, 0], COLUMN),
        {"broadcast-column": 0.0, "broadcast-targets": 2.0},
    ),
    "column and table": (
        lambda out: functional.mse_loss(out, TABLE),
        {"broadcast-column": 1.0, "broadcast-targets": 3.0},
    ),
    "huber": (lambda out: functional.huber_loss(out, TABLE), {"broadcast-column": 1.0, "broadcast-targets": 3.0}),
    "a difference": (lambda out: (out - ROW).square().mean(), {"broadcast-column": 1.0}),
    "a batch of one": (lambda out: functional.mse_loss(out[None], ROW[None]), {}),
}


TIMES, CHANNELS = 5, 3
STRETCHED: dict[str, tuple[Callable[[Tensor], Tensor], float | None]] = {
    "one channel": (lambda out: functional.mse_loss(out, torch.randn(ROWS, TIMES, 1)), CHANNELS),
    "one time": (lambda out: functional.mse_loss(out, torch.randn(ROWS, 1, CHANNELS)), TIMES),
    "targets first": (lambda out: functional.mse_loss(torch.randn(ROWS, TIMES, 1), out), CHANNELS),
    "of one shape": (lambda out: functional.mse_loss(out, torch.randn(ROWS, TIMES, CHANNELS)), None),
    "one number": (lambda out: functional.mse_loss(out, torch.zeros(1).expand_as(out)), None),
}


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("name", STRETCHED)
def test_a_target_that_is_stretched_over_an_axis(name: str) -> None:
    loss_of, length = STRETCHED[name]
    out = torch.nn.Linear(2, CHANNELS)(torch.randn(ROWS, TIMES, 2))
    assert read_graph(loss_of(out)).misuses.get("stretched-target") == length


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("name", MADE)
def test_the_shapes_are_those_that_met(name: str) -> None:
    loss_of, expected = MADE[name]
    weight = torch.nn.Linear(1, 1)
    misuses = read_graph(loss_of(weight(PREDICTED))).misuses
    assert misuses["broadcast"] == ROWS
    assert {key: value for key, value in misuses.items() if key.startswith("broadcast-")} == expected
