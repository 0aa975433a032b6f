"""Batches whose rows are all the same, and what only looks like them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from steadytrain.capture.looks.equal_inputs import equal_input_rows  # noqa: E402
from steadytrain.capture.looks.loss_graph import read_graph  # noqa: E402
from steadytrain.capture.step.input_recorder import record_call  # noqa: E402

ROWS = 8
LABELS = torch.arange(ROWS) % 3
ROW = torch.linspace(-1, 1, 5)


def looked(*given: Any, targets: Tensor = LABELS) -> dict[str, float]:
    scores = torch.randn(len(targets), 3, requires_grad=True)
    if targets.is_floating_point():
        loss = functional.mse_loss(scores[:, 0], targets)
    else:
        loss = functional.cross_entropy(scores, targets)
    return dict(equal_input_rows(read_graph(loss), record_call(nn.Identity(), given, {}, None)))


def test_one_constant_is_told_with_its_value() -> None:
    assert looked(torch.full((ROWS, 1, 4, 4), -4.5)) == {"equal-inputs": 8.0, "constant-inputs": -4.5}


def test_one_row_for_all_is_told_without_a_value() -> None:
    assert looked(ROW.expand(ROWS, 5)) == {"equal-inputs": 8.0}
    assert looked(torch.tensor([[4, 7, 1]] * ROWS)) == {"equal-inputs": 8.0}
    assert looked(ROW.expand(ROWS, 5), targets=torch.linspace(0, 1, ROWS)) == {"equal-inputs": 8.0}
    loss = functional.smooth_l1_loss(torch.randn(ROWS, requires_grad=True), torch.linspace(0, 1, ROWS))
    call = record_call(nn.Identity(), (ROW.expand(ROWS, 5),), {}, None)
    assert dict(equal_input_rows(read_graph(loss), call)) == {"equal-inputs": 8.0}


def test_a_mask_that_is_the_same_for_all_rows_tells_nothing_apart() -> None:
    assert looked(torch.zeros(ROWS, 4), torch.ones(ROWS, 4, dtype=torch.bool)) == {
        "equal-inputs": 8.0,
        "constant-inputs": 0.0,
    }


@pytest.mark.parametrize(
    "given",
    [
        (torch.zeros(ROWS, 4), torch.arange(ROWS)),  # codes beside a start of zeros
        (torch.zeros(ROWS, 1), torch.tensor([[0, 1], [1, 2]])),  # edges of a graph
        (torch.zeros(ROWS, 4).index_fill(0, torch.tensor([3]), 1.0),),
        (torch.zeros(ROWS, 4, requires_grad=True) * 2,),  # of another model
        (torch.zeros(ROWS, 4).fill_(float("nan")),),
        (torch.zeros(2, 4),),
        ("text",),
    ],
)
def test_rows_that_something_tells_apart_say_nothing(given: tuple[Any, ...]) -> None:
    assert looked(*given) == {}


def test_equal_targets_say_nothing() -> None:
    assert looked(torch.zeros(ROWS, 4), targets=torch.ones(ROWS).long()) == {}
    assert dict(equal_input_rows(read_graph(torch.ones(1, requires_grad=True).sum()), None)) == {}
