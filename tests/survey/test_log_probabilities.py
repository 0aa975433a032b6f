"""What goes into a loss: log-probabilities where it takes those, and the target at the target's place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from steadytrain.survey.calls import Calls

SCORES = torch.linspace(-1.0, 2.0, 12).reshape(4, 3)
WITH_NAN = SCORES.log_softmax(1).index_fill(0, torch.tensor([1]), float("nan"))


@pytest.mark.parametrize(
    ("given", "wrong"),
    [(SCORES, True), (SCORES.log_softmax(1), False), (WITH_NAN, False)],
    ids=["scores", "logarithms", "a row of NaN"],
)
def test_scores_are_none(given: Tensor, wrong: bool) -> None:
    calls = Calls()
    calls.look(True)
    try:
        F.nll_loss(given, torch.tensor([0, 1, 2, 0]))
    finally:
        calls.look(False)
    assert bool(calls.seen.logits_as_log_probabilities) is wrong


@pytest.mark.parametrize(
    ("loss", "wrong"), [(F.mse_loss, False), (F.smooth_l1_loss, False), (F.binary_cross_entropy, True)]
)
def test_only_a_loss_that_tells_them_apart_has_exchanged_arguments(loss: Callable[..., Tensor], wrong: bool) -> None:
    """``F.mse_loss(target, prediction)`` is the usual line of a deep Q-network."""
    values = torch.tensor([0.2, 0.7], requires_grad=True)
    calls = Calls()
    calls.look(True)
    try:
        loss(torch.tensor([0.0, 1.0]), values)
    finally:
        calls.look(False)
    assert bool(calls.seen.swapped) is wrong
