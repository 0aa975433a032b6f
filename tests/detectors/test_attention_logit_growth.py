from __future__ import annotations

from collections.abc import Sequence

import pytest

from steadytrain.core.model import Window
from steadytrain.detectors.attention_logit_growth import AttentionLogitGrowth
from steadytrain.testing import newest, steps
from steadytrain.testing.windows import table

NAN = float("nan")


def window(*logits: Sequence[float], every: int = 50) -> Window:
    at = range(every, every * len(logits[0]) + 1, every)
    rows = {f"h.{layer}.attn": values for layer, values in enumerate(logits)}
    return steps(loss=[2.0] * at[-1], tables={"modules": table("modules", at=at, attention_logit_max=rows)})


LOW = [1.0, 3.0, 5.0, 8.0, 7.0, 9.0, 8.0, 9.0]
GROWS = [5.0, 20.0, 80.0, 200.0, 400.0, 600.0, 800.0, 900.0]

HEALTHY = (
    window(LOW),
    window([NAN] * 8),
    window([NAN] * 7 + [5000.0]),
    window([150.0] * 8),  # a pretrained model that lives there
    window([5.0, 2000.0, 5.0, 5.0, 2000.0, 5.0, 5.0, 5.0]),  # single batches
    window([5.0] + [3000.0] * 6, every=2),  # six readings within 12 steps
)
SICK = (window(LOW, GROWS), window([3000.0] * 8), window([10.0 * 3.0**n for n in range(10)]))


def test_quiet() -> None:
    quiet = [*HEALTHY[:3], *HEALTHY[4:]]
    assert [AttentionLogitGrowth().check(sight) for sight in quiet] == [()] * len(quiet)


def test_a_level_that_stands_is_a_note() -> None:
    symptom = newest(AttentionLogitGrowth(), window([150.0] * 8))
    assert symptom is not None
    assert symptom.severity == "note"


@pytest.mark.parametrize(("top", "severity"), [(900.0, "warning"), (5e3, "warning"), (5e4, "critical")])
def test_growth(top: float, severity: str) -> None:
    symptom = newest(AttentionLogitGrowth(), window(LOW, [*GROWS[:5], top, top, top]))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step, symptom.tensors) == (severity, 200, ("h.1.attn",))


def test_one_reading_alone_does_not_make_it_critical() -> None:
    symptom = newest(AttentionLogitGrowth(), window([*GROWS[:7], 5e4]))
    assert symptom is not None
    assert symptom.severity == "warning"


def test_layers_stand_in_the_order_in_which_they_began() -> None:
    symptom = newest(AttentionLogitGrowth(), window([*LOW[:5], 200.0, 300.0, 400.0], GROWS))
    assert symptom is not None
    assert symptom.tensors == ("h.1.attn", "h.0.attn")


def test_the_onset_stays_as_the_window_slides() -> None:
    whole = window([5.0] * 10 + GROWS + [1000.0] * 10)
    looks = [newest(AttentionLogitGrowth(), whole.slice(start, start + 900)) for start in range(0, 500, 48)]
    assert {symptom.first_step for symptom in looks if symptom is not None} == {700}
