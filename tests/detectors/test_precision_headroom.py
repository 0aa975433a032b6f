from __future__ import annotations

from collections.abc import Sequence

from steadytrain.core.model import Window
from steadytrain.detectors.precision_headroom import PrecisionHeadroom
from steadytrain.testing import newest, steps
from steadytrain.testing.windows import table

NAN = float("nan")
FLOAT16, FLOAT8 = 3.0, 4.0


def window(headroom: Sequence[float], dtype: float = FLOAT16, every: int = 50) -> Window:
    at = range(every, every * len(headroom) + 1, every)
    readings = table(
        "modules",
        at=at,
        headroom={"mlp": headroom, "attn": [0.01] * len(at)},
        dtype={"mlp": [dtype] * len(at), "attn": [dtype] * len(at)},
    )
    return steps(loss=[2.0] * at[-1], tables={"modules": readings})


GROWS = [0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6]

HEALTHY = (
    window([0.1] * 8),
    window([NAN] * 8),
    window([NAN] * 7 + [0.9]),
    window([1.0] * 8),  # a mask of the smallest finite number
    window([0.02, 0.9, 0.02, 0.02, 0.02, 0.7, 0.02, 0.02]),  # single batches
    window(GROWS, dtype=FLOAT8),
    window([0.02, *[0.9] * 8], every=1),
)
SICK = (window(GROWS), window([0.02] * 4 + [0.9] * 4))


def test_quiet() -> None:
    assert [PrecisionHeadroom().check(sight) for sight in HEALTHY] == [()] * len(HEALTHY)


def test_growth_is_a_warning_from_a_quarter_on() -> None:
    symptom = newest(PrecisionHeadroom(), window(GROWS))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step, symptom.last_step) == ("warning", 250, 400)
    assert symptom.tensors == ("mlp",)


def test_near_the_end_it_is_critical() -> None:
    symptom = newest(PrecisionHeadroom(), window([*GROWS[:6], 0.7, 0.95]))
    assert symptom is not None
    assert symptom.severity == "critical"


def test_the_step_is_the_same_from_a_window_that_began_later() -> None:
    whole = window([0.02] * 10 + GROWS)
    later = whole.slice(300, 900)
    assert [s.first_step for s in PrecisionHeadroom().check(whole)] == [
        s.first_step for s in PrecisionHeadroom().check(later)
    ]


def test_readings_of_skipped_steps_count() -> None:
    sight = window(GROWS)
    skipped = sight.steps >= 250
    symptom = newest(PrecisionHeadroom(), Window(**{**vars(sight), "skipped": skipped}))
    assert symptom is not None
    assert symptom.first_step == 250
