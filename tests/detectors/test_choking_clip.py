from __future__ import annotations

from dataclasses import replace

from script_windows import looked
from steadytrain.core.model import Window
from steadytrain.detectors.choking_clip import ChokingClip
from steadytrain.testing import newest, steps


def clipped(*, left: float = 0.002, applied: float = 1e-2, count: int = 80, **rows: list[float]) -> Window:
    signals = {"learning_rate": 0.1, "gradient_norm_applied": applied, "parameter_norm": 20.0, "clip_coefficient": left}
    window = steps(**{name: [value] * count for name, value in signals.items()})
    return replace(window, tables=looked(count, **rows).tables)


SICK = (clipped(descent__SGD=[1.0]),)
QUIET = {
    "another optimizer": clipped(),
    "a usual limit": clipped(left=0.2, descent__SGD=[1.0]),
    "a rate that makes up for it": clipped(applied=1.0, descent__SGD=[1.0]),
    "momentum": clipped(descent__SGD=[10.0]),
    "the first steps": clipped(count=40, descent__SGD=[1.0]),
    "another fault": clipped(descent__SGD=[1.0], clipped_scaled__gradients=[1.0]),
}
HEALTHY = tuple(QUIET.values())


def test_a_limit_far_too_low() -> None:
    symptom = newest(ChokingClip(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert symptom.message.startswith("clipping leaves 0.002 of the usual gradient, and an update of SGD changes the")


def test_quiet() -> None:
    assert {name: ChokingClip().check(window) for name, window in QUIET.items()} == dict.fromkeys(QUIET, ())


def test_a_clip_by_hand_is_looked_at_in_every_sixteenth_step() -> None:
    """There is no clip of torch, so nothing is measured in each step."""
    signals = {"learning_rate": 0.1, "gradient_norm_applied": 1e-2, "parameter_norm": 20.0}
    window = steps(**{name: [value] * 80 for name, value in signals.items()})
    for left, is_told in ((0.002, True), (0.5, False)):
        rows = looked(80, descent__SGD=[1.0], left_by_clip__gradients=[left]).tables
        assert (newest(ChokingClip(), replace(window, tables=rows)) is not None) is is_told
