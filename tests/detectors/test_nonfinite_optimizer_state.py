from __future__ import annotations

import math
from collections.abc import Sequence

from steadytrain.core.model import Window
from steadytrain.detectors.nonfinite_optimizer_state import NonfiniteOptimizerState
from steadytrain.testing import newest, steps
from steadytrain.testing.windows import table

NAN = math.nan
CLEAN = [0.0] * 10
BROKEN = [0.0] * 4 + [7.0] * 6


def window(first: Sequence[float], second: Sequence[float]) -> Window:
    readings = table(
        "tensors",
        at=range(50, 501, 50),
        first_moment_nonfinite={"a": CLEAN, "b": first},
        second_moment_nonfinite={"a": CLEAN, "b": second},
    )
    return steps(loss=[2.0] * 500, tables={"tensors": readings})


HEALTHY = (
    window(CLEAN, CLEAN),
    window([NAN] * 10, [NAN] * 10),  # plain SGD keeps no moments
    window([NAN] * 9 + [0.0], [NAN] * 9 + [0.0]),
)
SICK = (window(BROKEN, BROKEN), window(CLEAN, BROKEN), window([0.0] * 9 + [1.0], CLEAN))


def test_quiet() -> None:
    assert all(NonfiniteOptimizerState().check(sight) == () for sight in HEALTHY)


def test_an_infinite_second_moment_alone_is_critical() -> None:
    symptom = newest(NonfiniteOptimizerState(), window(CLEAN, BROKEN))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step, symptom.last_step, symptom.tensors) == ("critical", 250, 500, ("b",))
    assert symptom.signals == ("tensors.second_moment_nonfinite",)
    assert "second moment of b" in symptom.message


def test_both_moments_of_one_gradient_are_one_symptom() -> None:
    assert len(NonfiniteOptimizerState().check(window(BROKEN, BROKEN))) == 1


def test_two_faults_at_different_times_are_two_oldest_first() -> None:
    symptoms = NonfiniteOptimizerState().check(window([0.0] * 8 + [1.0] * 2, BROKEN))
    assert [symptom.first_step for symptom in symptoms] == [250, 450]
