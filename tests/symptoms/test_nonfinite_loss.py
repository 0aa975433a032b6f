from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from steadytrain.symptoms.nonfinite_loss import NonfiniteLoss
from steadytrain.testing import newest, steps

NAN, INF = math.nan, math.inf

QUIET: dict[str, tuple[Sequence[float | None], Sequence[int]]] = {
    "no step": ([], []),
    "finite": ([2.0, 1.9, 1e30], []),
    "not measured": ([2.0, None, None], []),
    "one step that the scaler skipped": ([2.0, NAN], [2]),
    "two steps that the scaler skipped": ([2.0, INF, NAN], [2, 3]),
    "skips with a finite loss": ([2.0, 2.0, 2.0, 2.0], [1, 2, 3, 4]),
    "skips apart from each other": ([NAN, 2.0, NAN, 2.0, NAN], [1, 3, 5]),
    "long ago": ([NAN] + [2.0] * 16, []),
}

SICK = (steps(loss=[2.0, NAN]),)
HEALTHY = tuple(steps(loss=loss, skipped=skipped) for loss, skipped in QUIET.values())


@pytest.mark.parametrize(("loss", "skipped"), QUIET.values(), ids=QUIET)
def test_quiet(loss: Sequence[float | None], skipped: Sequence[int]) -> None:
    assert newest(NonfiniteLoss(), steps(loss=loss, skipped=skipped)) is None


BAD: dict[str, tuple[Sequence[float | None], Sequence[int], str, int, int]] = {
    "NaN": ([2.0, NAN], [], "critical", 2, 2),
    "Inf": ([2.0, INF], [], "critical", 2, 2),
    "minus Inf": ([2.0, -INF], [], "critical", 2, 2),
    "at the first step": ([NAN], [], "critical", 1, 1),
    "several in a row": ([2.0, NAN, INF, NAN], [], "critical", 2, 4),
    "the newest run of two": ([NAN, 2.0, NAN, NAN], [], "critical", 3, 4),
    "between two looks": ([2.0, NAN] + [2.0] * 15, [], "critical", 2, 2),
    "a step without a measurement between": ([2.0, NAN, None, NAN], [], "critical", 2, 4),
    "three skipped in a row": ([2.0, NAN, INF, NAN], [2, 3, 4], "warning", 2, 4),
    "two skipped, then one applied": ([2.0, NAN, NAN, NAN], [2, 3], "critical", 2, 4),
}


@pytest.mark.parametrize(("loss", "skipped", "severity", "first", "last"), BAD.values(), ids=BAD)
def test_bad(loss: Sequence[float | None], skipped: Sequence[int], severity: str, first: int, last: int) -> None:
    symptom = newest(NonfiniteLoss(), steps(loss=loss, skipped=skipped))
    assert symptom is not None
    assert (symptom.name, symptom.severity) == ("nonfinite-loss", severity)
    assert (symptom.first_step, symptom.last_step) == (first, last)


def test_a_refused_step_counts_because_it_was_refused_for_this() -> None:
    symptom = newest(NonfiniteLoss(), steps(loss=[2.0, NAN], refused=[2]))
    assert symptom is not None
    assert symptom.severity == "critical"


def test_message_and_numbers_tell_nan_from_inf() -> None:
    symptom = newest(NonfiniteLoss(), steps(loss=[2.0, INF, NAN, NAN], skipped=[2]))
    assert symptom is not None
    assert symptom.message == "the loss is Inf from step 2 to 4"
    assert symptom.numbers == {"steps": 3.0, "nan_steps": 2.0, "inf_steps": 1.0, "skipped_steps": 1.0}


def test_a_run_that_stays_nan_for_ever_is_not_a_new_symptom_at_every_look() -> None:
    looks = [newest(NonfiniteLoss(), steps(loss=[NAN] * 2048, first_step=start)) for start in range(5000, 6000, 16)]
    assert len({symptom.first_step for symptom in looks if symptom is not None}) <= 2
    assert all(symptom is not None for symptom in looks)
