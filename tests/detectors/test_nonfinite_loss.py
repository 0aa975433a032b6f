from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from steadytrain.detectors.divergence import Divergence
from steadytrain.detectors.loss_spike import LossSpike
from steadytrain.detectors.nonfinite_gradient import NonfiniteGradient
from steadytrain.detectors.nonfinite_loss import NonfiniteLoss
from steadytrain.testing import healthy_loss, newest, steps

NAN, INF = math.nan, math.inf

QUIET: dict[str, tuple[Sequence[float | None], Sequence[int]]] = {
    "no step": ([], []),
    "finite": ([2.0, 1.9, 1e30], []),
    "not measured": ([2.0, None, None], []),
    "one step that the scaler skipped": ([2.0, NAN], [2]),
    "two steps that the scaler skipped": ([2.0, INF, NAN], [2, 3]),
    "skips with a finite loss": ([2.0, 2.0, 2.0, 2.0], [1, 2, 3, 4]),
    "skips apart from each other": ([NAN, 2.0, NAN, 2.0, NAN], [1, 3, 5]),
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
    "it comes and goes": ([NAN, 2.0, NAN, NAN], [], "critical", 1, 4),
    "the newest of two": ([NAN] + [2.0] * 17 + [NAN], [], "critical", 19, 19),
    "long ago": ([NAN] + [2.0] * 200, [], "critical", 1, 1),
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
    numbers = {"steps": 3.0, "nan_steps": 2.0, "inf_steps": 1.0, "hidden_steps": 0.0, "skipped_steps": 1.0}
    assert symptom.numbers == numbers


def test_a_run_that_stays_nan_for_ever_is_not_a_new_symptom_at_every_look() -> None:
    looks = [newest(NonfiniteLoss(), steps(loss=[NAN] * 2048, first_step=start)) for start in range(5000, 6000, 16)]
    assert len({symptom.first_step for symptom in looks if symptom is not None}) <= 2
    assert all(symptom is not None for symptom in looks)


FINE = [2.0, 1.9, 1.8, 1.85] * 10


def test_a_loss_of_zero_beside_a_gradient_norm_that_is_nan_is_a_hidden_nan() -> None:
    window = steps(loss=FINE + [0.0] * 20, gradient_norm=[1.0] * 40 + [NAN] * 20)
    (symptom,) = NonfiniteLoss().check(window)
    assert (symptom.severity, symptom.first_step, symptom.last_step) == ("critical", 41, 60)
    assert "hidden NaN" in symptom.message
    assert symptom.signals == ("loss", "gradient_norm")
    assert symptom.numbers["hidden_steps"] == 20.0


def test_from_the_first_logged_step_on() -> None:
    (symptom,) = NonfiniteLoss().check(steps(loss=[0.0] * 30, gradient_norm=[NAN] * 30, first_step=10, stride=10))
    assert (symptom.first_step, symptom.last_step) == (10, 300)


def test_zero_alone_and_a_bad_norm_alone_are_not_hidden() -> None:
    assert NonfiniteLoss().check(steps(loss=FINE + [0.0] * 20, gradient_norm=[1.0] * 60)) == ()
    assert NonfiniteLoss().check(steps(loss=FINE, gradient_norm=[1.0] * 39 + [NAN])) == ()
    assert NonfiniteLoss().check(steps(loss=FINE + [0.0] * 20)) == ()


# The traps of other tools: a NaN that resets a counter, poisons a mean, or is filtered away.


def test_a_nan_does_not_reset_the_patience_of_a_divergence() -> None:
    """A rule with patience that compares with `>=` counts from zero again at every NaN (llm-foundry)."""
    rising = [4.0] * 40 + [9.0] * 40
    broken = [NAN if i % 5 == 0 and i > 40 else value for i, value in enumerate(rising)]
    assert [symptom.name for symptom in Divergence().check(steps(loss=broken))] == ["divergence"]
    (symptom,) = NonfiniteLoss().check(steps(loss=broken))
    assert (symptom.first_step, symptom.last_step) == (46, 76)


def test_one_nan_does_not_mark_the_128_steps_after_it() -> None:
    """A mean over a window that holds a NaN is NaN until it has left (OLMo-core)."""
    loss = healthy_loss(1500)
    loss[1000] = NAN
    window = steps(loss=loss)
    (symptom,) = NonfiniteLoss().check(window)
    assert (symptom.first_step, symptom.last_step) == (1001, 1001)
    loss[1040] += 1.0
    assert [symptom.first_step for symptom in LossSpike().check(steps(loss=loss))] == [1041]


def test_a_nan_in_a_mean_of_the_log_is_still_seen_by_its_gradient() -> None:
    """The filter logs the mean of the steps before in place of a NaN (Hugging Face's Trainer)."""
    window = steps(loss=FINE + [1.85] * 20, gradient_norm=[1.0] * 40 + [NAN] * 20)
    (symptom,) = NonfiniteGradient().check(window)
    assert (symptom.first_step, symptom.last_step) == (41, 60)
