"""The weights of the terms that a script adds up to its loss."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from steadytrain.capture.looks.term_weights import EVERY, TermWeights

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def weights_of(loss: Loss, *, step: int = EVERY) -> list[float]:
    torch.manual_seed(0)
    x = torch.randn(8, requires_grad=True)
    found = TermWeights()
    found.read(loss(x.square().mean(), x.abs().mean(), x.exp().mean()), step)
    rows = dict(found.rows())
    assert dict(found.rows()) == {}  # once a reading
    assert all(name.startswith("term-weight:test_term_weights.py:") for name in rows)
    return list(rows.values())


@pytest.mark.parametrize(
    ("loss", "weights"),
    [
        (lambda a, b, c: a + 0.25 * b, [0.25]),
        (lambda a, b, c: a + 0.25 * b + c / 4, [0.25, 0.25]),
        (lambda a, b, c: 2 * a - b * 3, [1.5]),
        (lambda a, b, c: 1024.0 * (a + 0.5 * b) / 8, [0.5]),  # a loss scale, and a mean over parts
        (lambda a, b, c: -(a + 2 * (b + 3 * c)), [2.0, 6.0]),
        (lambda a, b, c: a + torch.tensor(0.5) * b, [0.5]),
        (lambda a, b, c: a + b * c, [1.0]),  # a product of two that train is one term
        (lambda a, b, c: a, []),
        (lambda a, b, c: a + 1.0, []),
        (lambda a, b, c: a + 0.0 * b, [1.0]),  # a weight of 0 is not read
    ],
)
def test_weights_over_that_of_the_first_term(loss: Loss, weights: list[float]) -> None:
    assert weights_of(loss) == pytest.approx(weights)


def test_other_steps_are_not_read() -> None:
    assert weights_of(lambda a, b, c: a + 2 * b, step=EVERY + 1) == []
