"""Variances of which rounding is left."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from steadytrain.survey.cancelled_variances import CancelledVariances

LINE = "train.py:9: variance = squares / count - mean.pow(2)"
DRAW = torch.Generator().manual_seed(2)


def variance(rows: Tensor, square: str) -> dict[str, Any] | None:
    """What the look says of the mean of squares less the square of the mean, of the columns of ``rows``."""
    look = CancelledVariances()
    mean, squares = rows.mean(0), rows.square().mean(0)
    made = {"pow": mean.pow(2), "__mul__": mean * mean, "square": mean.square()}[square]
    args = {"pow": (mean, 2), "__mul__": (mean, mean), "square": (mean,)}[square]
    look.saw(square, args, made, LINE, 3)
    look.saw("__sub__", (squares, made), squares - made, LINE, 3)
    listed = look.found()
    return listed[0] if listed else None


WEATHER = torch.stack([101_300 + 12 * torch.randn(500, generator=DRAW), 11 + 2 * torch.randn(500, generator=DRAW)], 1)


@pytest.mark.parametrize("square", ["pow", "__mul__", "square"])
def test_a_variance_that_cancels(square: str) -> None:
    one = variance(WEATHER, square)
    assert one is not None
    assert (one["distance"], one["step"]) == (1024.0, 3)
    assert 1.0e10 < one["largest"] < 1.1e10


@pytest.mark.parametrize(
    "rows",
    [WEATHER - WEATHER.mean(0), WEATHER.double(), WEATHER - torch.tensor([101_250.0, 0.0]), torch.zeros(500, 2)],
    ids=["centred", "float64", "near its spread", "nothing but zeros"],
)
def test_a_variance_of_which_enough_is_left(rows: Tensor) -> None:
    assert variance(rows, "pow") is None


def test_a_residual_of_a_square_is_no_variance() -> None:
    look, guess = CancelledVariances(), 40 + torch.randn(500, generator=DRAW)
    square, target = guess.square(), guess.square() + torch.randn(500, generator=DRAW) * 50
    look.saw("square", (guess,), square, LINE, 3)
    look.saw("__sub__", (target, square), target - square, LINE, 3)
    assert look.found() is None
