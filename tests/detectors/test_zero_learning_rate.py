from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from steadytrain.core.model import Window
from steadytrain.detectors.zero_learning_rate import ZeroLearningRate
from steadytrain.testing import newest, steps
from steadytrain.testing.windows import table

STILL, MOVING = 0.0, 1e-3
WARM_UP = np.linspace(0.0, 1e-3, 20).tolist()
COSINE = (5e-4 * (1.0 + np.cos(np.linspace(0.0, np.pi, 200)))).tolist()


def window(rate: Sequence[float], update: float | None = STILL, *, first: int = 1) -> Window:
    """Steps with these rates; two tensors that are measured every 16 steps."""
    at = range(first - 1 + 16, first + len(rate), 16)
    tables = {}
    if update is not None and len(at):
        tables = {"tensors": table("tensors", at=at, update_ratio={name: [update] * len(at) for name in "ab"})}
    return steps(learning_rate=list(rate), tables=tables, first_step=first)


QUIET = (
    window([1e-3] * 200, MOVING),
    window(WARM_UP + [1e-3] * 50, MOVING),
    window(COSINE, MOVING),
    window(([*COSINE[::4]] * 3) + [1e-3], MOVING),  # restarts
    window([0.0] * 15),  # too few steps to say
    window([1e-3] * 50 + [0.0] * 15 + [1e-3] * 20, MOVING),
)
HEALTHY = (
    *QUIET,
    window(COSINE + [0.0] * 32),  # the schedule has ended
    window([0.0] * 40, MOVING),  # another group has a rate
    window([0.0] * 40, None),
)
SHORT = COSINE[::4] + [0.0] * 40
SICK = (window([0.0] * 40), window([1e-3] * 60 + [0.0] * 32), window(SHORT))


def test_quiet() -> None:
    assert [ZeroLearningRate().check(sight) for sight in QUIET] == [()] * len(QUIET)


def test_from_the_first_step() -> None:
    symptom = newest(ZeroLearningRate(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step, symptom.last_step) == ("warning", 1, 40)
    assert symptom.message == "the learning rate is 0 at 40 steps from the first step on: no weight moves"


def test_from_one_step_to_the_next() -> None:
    symptom = newest(ZeroLearningRate(), SICK[1])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 61)
    assert "after 0.001 at step 60" in symptom.message


def test_a_schedule_that_has_ended_is_a_note() -> None:
    symptom = newest(ZeroLearningRate(), window(COSINE + [0.0] * 32))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("note", len(COSINE))


def test_a_schedule_that_was_too_short_is_a_warning() -> None:
    symptom = newest(ZeroLearningRate(), window(SHORT))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 51)
    assert symptom.message.endswith("no weight moves; the schedule ends with step 50, and the run goes on")
    assert newest(ZeroLearningRate(), window(SHORT, MOVING)).severity == "note"  # type: ignore[union-attr]


@pytest.mark.parametrize("update", [None, MOVING])
def test_other_groups_may_move(update: float | None) -> None:
    symptom = newest(ZeroLearningRate(), window([0.0] * 40, update))
    assert symptom is not None
    assert symptom.severity == "note"


def test_its_first_step_does_not_move_with_the_window() -> None:
    assert ZeroLearningRate().check(window([0.0] * 64, first=2000)) == ()
    later = newest(ZeroLearningRate(), window([1e-3] * 10 + [0.0] * 54, first=2000))
    assert later is not None
    assert later.first_step == 2010
