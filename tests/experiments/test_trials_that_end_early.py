"""Trials that end before their control."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from steadytrain.experiments.case import Case
from steadytrain.experiments.judging import judge
from steadytrain.experiments.specs import Entry
from trial_cases import CALM, FLAT, HURT, SPIKE, finite_case, made

BEGIN = 86


@pytest.fixture
def case() -> Case:
    return finite_case(begins=(BEGIN,))


def test_a_trial_that_ended_before_the_control_was_not_finite_concludes_nothing(case: Case) -> None:
    named = replace(case, symptom=replace(case.symptom, name="nonfinite-loss")) if case.symptom else case
    control = made("unchanged", [2.0, 2.0, 2.0, math.nan], FLAT)
    ended = made("clip", [2.0, 2.0], FLAT[:3], ended="the script's loop was over")
    verdict = judge("clip", named, [control], [ended])
    assert verdict.effect == "inconclusive"
    assert verdict.why == "it ended 2 steps before the control: the script's loop was over"


@pytest.mark.parametrize(("probe", "expected"), [(2.0, "removed"), (math.nan, "inconclusive"), (None, "inconclusive")])
def test_a_script_that_ends_at_the_dropped_batch_is_judged_by_the_probes_before_it(
    case: Case, probe: float | None, expected: str
) -> None:
    assert case.symptom is not None
    named = replace(case, symptom=replace(case.symptom, name="nonfinite-loss"))
    control = made("unchanged", [2.0, 2.0, 2.0, math.nan], FLAT)
    ended = made("drop-batch", [2.0, 2.0, 2.0], FLAT[:3], ended="the script's loop was over")
    schedule = (*ended.spec.schedule, Entry(BEGIN + 4, "refused"))
    probes = (*ended.probes[:-1], replace(ended.probes[-1], loss=probe))
    ended = replace(ended, spec=replace(ended.spec, schedule=schedule), probes=probes)
    assert judge("drop-batch", named, [control], [ended]).effect == expected


@pytest.mark.parametrize(("ended", "expected"), [("the script's loop was over", "removed"), (None, "inconclusive")])
def test_a_trial_without_one_batch_ends_one_step_earlier_where_the_loop_of_both_is_over(
    case: Case, ended: str | None, expected: str
) -> None:
    """The script ends its loop in the middle of the schedule: the batch that was left out is the step that is missing.
    If the loop of the control went on, the trial did end early."""
    control = replace(made("unchanged", SPIKE, HURT), ended=ended)
    short = made("drop-batch", CALM[:-1], FLAT[: len(CALM) - 1], ended="the script's loop was over")
    probes = tuple(replace(one, loss=2.0) for one in short.probes[:-1])
    schedule = (*short.spec.schedule, Entry(BEGIN + len(CALM), "refused"))
    short = replace(short, spec=replace(short.spec, schedule=schedule), probes=probes)
    assert judge("drop-batch", case, [control], [short]).effect == expected
