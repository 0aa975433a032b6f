"""Trials of an onset in the first steps start at the script's start, and elsewhere if that replay is not exact."""

from __future__ import annotations

from dataclasses import replace

import pytest

from steadytrain.experiments.planning import from_the_beginning, planned
from steadytrain.experiments.specs import NotApplicable
from steadytrain.experiments.trial_catalog import trial
from steadytrain.experiments.trial_starts import EARLY_ONSET, START, begins_of, other_start
from trial_cases import finite_case


@pytest.mark.parametrize(
    ("starts", "taped", "onset", "begins"),
    [
        ((2,), ((1, 3),), 3, (START, 1)),
        ((2,), ((1, EARLY_ONSET),), EARLY_ONSET, (START, 1)),
        ((2,), ((1, 40),), EARLY_ONSET + 1, (1,)),
        ((2,), ((2, 3),), 3, (1,)),  # the first step is not on the tape
        ((), (), 3, ()),
        ((), ((1, 1),), 1, (START,)),  # the first batch is the bad one
        ((65, 129), ((65, 200),), 200, (64, 128)),
    ],
)
def test_the_start_of_the_script_counts_only_for_its_first_steps(
    starts: tuple[int, ...], taped: tuple[tuple[int, int], ...], onset: int, begins: tuple[int, ...]
) -> None:
    assert begins_of(starts, taped, onset) == begins


def test_its_trials_feed_the_recorded_batches_from_step_1_on() -> None:
    case = replace(finite_case(), onset=3, step=3, begins=(START, 1), taped=((1, 3),))
    assert case.begin == START
    for name in ("learning-rate-third", "longer-warmup", "learning-rate-hundredth", "clip-usual"):
        plan = trial(name).plan(case)
        assert not isinstance(plan, NotApplicable), name
        assert plan[0].begin == START
        assert [one.step for one in plan[0].schedule if one.role == "train"][:4] == [1, 2, 3, None]
    later = trial("learning-rate-hundredth").plan(replace(case, begins=(1,)))
    assert isinstance(later, NotApplicable)


def test_a_start_that_is_not_exact_has_another() -> None:
    case = replace(finite_case(), onset=3, step=3, begins=(START, 1), taped=((1, 3),))
    other = other_start(case, differs=True)
    assert other is not None
    assert (other[0].begin, other[1]) == (1, "from the first snapshot")
    assert other_start(replace(case, begins=(1,)), differs=True) is None  # all earlier steps are run already


def test_from_the_start_steps_that_are_not_whole_on_the_tape_are_those_of_the_script() -> None:
    case = finite_case(begins=(START,), taped=((1, 100),), onset=3, not_whole="more than 256 calls of the model")
    for plan in (planned, from_the_beginning):
        specs = plan(trial("learning-rate-third"), case)
        assert not isinstance(specs, NotApplicable)
        assert [one.begin for one in specs] == [None]
