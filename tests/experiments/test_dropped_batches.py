"""A dropped batch, and a later one that fails by itself: is the state sound in between?"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from steadytrain.experiments.specs import Outcome
from steadytrain.experiments.trial_catalog import trial
from trial_cases import FLAT, finite_case, made

ONSET = 90


def without_the_batch(losses: list[float], norms: list[float]) -> Outcome:
    """The losses and gradient norms of the steps from 87 on; the update of the onset is refused."""
    outcome = made("drop-batch", losses, FLAT)
    schedule = tuple(replace(one, role="refused") if one.step == ONSET else one for one in outcome.spec.schedule)
    steps = tuple(
        replace(seen, gradient_norm=norm)
        for seen, norm in zip(outcome.steps, norms, strict=True)
        if schedule[seen.entry].role != "refused"
    )
    return replace(outcome, spec=replace(outcome.spec, schedule=schedule), steps=steps)


@pytest.mark.parametrize(
    ("after", "norms", "expected"),
    [
        ([2.0, 2.0, math.nan], [0.5, 0.5, 0.5], "removed"),
        ([2.0, math.nan, math.nan], [0.5, 0.5, 0.5], "persists"),
        ([2.0, 40.0, math.nan], [0.5, 0.5, 0.5], "persists"),
        ([2.0, 2.0, math.nan], [0.5, 900.0, 0.5], "persists"),
    ],
    ids=["two sound steps", "one sound step", "a loss that rises", "a gradient that grows"],
)
def test_a_batch_that_fails_later_has_its_own_fault_where_the_steps_before_it_are_sound(
    after: list[float], norms: list[float], expected: str
) -> None:
    case = finite_case(begins=(86,), step=ONSET)
    case = replace(case, symptom=replace(case.symptoms[0], name="nonfinite-loss", first_step=ONSET, last_step=ONSET))
    control = made("unchanged", [2.0, 2.0, 2.0, math.nan], FLAT)
    outcome = without_the_batch([2.0, 2.0, 2.0, 2.0, *after], [0.5] * 4 + norms)
    verdict = trial("drop-batch").judge(case, [control], [outcome])
    assert verdict.effect == expected, verdict
    assert ("the batch of step 93 fails" in verdict.why) == (expected == "removed")
