from __future__ import annotations

from dataclasses import replace

from script_windows import NAN, looked
from steadytrain.core.model import Window
from steadytrain.detectors.unscaled_targets import UnscaledTargets
from steadytrain.testing import newest, steps


def seen(means: list[float], predictions: list[float], *, rise: float = 0.0) -> Window:
    shown = looked(far_targets__train_py=means, their_predictions__train_py=predictions)
    return replace(steps(learning_rate=[1e-3 + rise * at for at in range(40)]), tables=shown.tables)


STUCK = seen([2.5e5] * 7, [0.1, 0.1, 0.2, 0.2, 0.3, 0.5, 0.9])
QUIET = {
    "nothing is far": looked(),
    "it comes nearer": seen([50.0] * 7, [0.0, 0.1, 0.2, 0.3, 0.5, 1.0, 3.0]),
    "it got there": seen([2.5e5, 2.5e5, 2.5e5, NAN, NAN, NAN, NAN], [0.0, 1e5, 2e5, NAN, NAN, NAN, NAN]),
    "nothing moves at all": seen([2.5e5] * 7, [0.1] * 7),
    "a warm-up": seen([2.5e5] * 7, [0.1, 0.1, 0.2, 0.2, 0.3, 0.5, 0.9], rise=1e-4),
    "steps that are not known": replace(looked(), tables=STUCK.tables),
}
SICK, HEALTHY = (STUCK,), tuple(QUIET.values())


def test_targets_out_of_the_reach_of_a_rate() -> None:
    symptom = newest(UnscaledTargets(), STUCK)
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert symptom.message.endswith(
        "have a mean of 2.5e+05, and the predictions came from 0.1 to 0.9 in 32 updates: the rate does not reach them"
    )


def test_quiet() -> None:
    assert {name: UnscaledTargets().check(window) for name, window in QUIET.items()} == dict.fromkeys(QUIET, ())


def exploding(losses: list[float], variance: float) -> Window:
    shown = looked(target_variance__train_py=[NAN, variance, variance])
    return replace(steps(loss=losses), tables=shown.tables)


def test_targets_whose_first_gradients_are_too_long() -> None:
    symptom = newest(UnscaledTargets(), exploding([1.7e9, 7.8e32, float("inf")], 5.6e7))
    assert symptom is not None
    assert symptom.message.endswith("vary by 7483; that loss begins at 1.7e+09, and is 7.8e+32 at step 2")
    for losses, variance in (([1.7e9, 1.6e9, 1.5e9], 5.6e7), ([2.0, 1e6, float("nan")], 1.0)):
        assert UnscaledTargets().check(exploding(losses, variance)) == ()
