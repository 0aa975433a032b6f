"""What goes into a loss that takes log-probabilities."""

from __future__ import annotations

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
