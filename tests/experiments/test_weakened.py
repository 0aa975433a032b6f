"""A trial that takes most of the symptom away, and not all, has a verdict of its own."""

from __future__ import annotations

import pytest

from steadytrain.core.model import Symptom
from steadytrain.experiments.judging import judge
from steadytrain.experiments.specs import WEAKENED
from trial_cases import CALM, finite_case, made

STUCK = finite_case(begins=(86,), symptom=Symptom("no-learning", "warning", 90, 92, "it does not learn"))


@pytest.mark.parametrize(
    ("change", "expected", "weakened"),
    [(0.017, "inconclusive", True), (0.15, "persists", False), (0.25, "persists", False), (-0.2, "removed", False)],
)
def test_a_trial_that_takes_most_of_a_rise_away_weakens_it(change: float, expected: str, weakened: bool) -> None:
    control = made("unchanged", CALM, [2.0, 2.05, 2.1, 2.15, 2.214])
    third = made("learning-rate-third", CALM, [2.0, 2.0, 2.01, 2.01, 2.0 + change])
    found = judge("learning-rate-third", STUCK, [control], [third])
    assert (found.effect, WEAKENED in found.numbers) == (expected, weakened)
    assert found.why.startswith("weakened, not removed: loss on fixed batches changes by +0.017") is weakened


@pytest.mark.parametrize(("end", "weakened"), [(2.05, True), (2.4, False)])
def test_a_training_loss_of_which_most_of_the_rise_is_gone_is_weakened(end: float, weakened: bool) -> None:
    control = made("unchanged", [2.0] * 6 + [2.5, 2.51], [], begin=0)
    third = made("learning-rate-third", [2.0] * 6 + [end, end + 0.01], [], begin=0)
    found = judge("learning-rate-third", STUCK, [control], [third])
    assert (WEAKENED in found.numbers, found.effect) == (weakened, "inconclusive" if weakened else "persists")
