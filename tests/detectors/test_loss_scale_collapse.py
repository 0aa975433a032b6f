from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import pytest

from steadytrain.core.model import Window
from steadytrain.detectors.loss_scale_collapse import LossScaleCollapse
from steadytrain.testing import newest, steps

COUNT = 1200


def scaled(skipped: Collection[int], start: float = 65536.0, count: int = COUNT) -> list[float | None]:
    """The scale at each step, halved after every skip."""
    scale, scales = start, []
    for step in range(1, count + 1):
        scales.append(scale)
        scale = scale / 2 if step in skipped else scale
    return list(scales)


def window(*skipped: int, start: float = 65536.0, first_step: int = 1, resumed: Sequence[int] = ()) -> Window:
    found = steps(
        loss=[2.0] * COUNT,
        loss_scale=scaled(skipped, start),
        skipped=[step + first_step - 1 for step in skipped],
        first_step=first_step,
    )
    return replace(found, resumed=np.array(resumed, np.int64))


def strided(counts: Sequence[float]) -> Window:
    return steps(loss=[2.0] * len(counts), scaler_skips=counts, loss_scale=[65536.0] * len(counts), stride=10)


SEARCH = range(1, 8)

HEALTHY = (
    window(),
    window(*SEARCH),  # the search for a scale
    window(*SEARCH, 900),
    window(300, 301),
    window(200, 400, 600, 800),
    window(start=1.0),  # a scale that was chosen, or bfloat16
    window(start=64.0),
    window(300, start=256.0),  # one halving of it
    window(3, 4, start=512.0),
    window(*range(500, 505), first_step=5001, resumed=[5500]),
    strided([0.0] * 50 + [1.0] * 50),
    steps(loss=[2.0] * 50),
)
SICK = (
    window(*range(600, 604)),
    window(*range(1, 12)),
    window(*range(600, 620)),
    window(*range(300, 900, 50)),
    strided([0.0] * 20 + [float(n) for n in range(80)]),
)


def test_quiet() -> None:
    assert [LossScaleCollapse().check(sight) for sight in HEALTHY] == [()] * len(HEALTHY)


def test_skips_in_a_row() -> None:
    symptom = newest(LossScaleCollapse(), window(*range(600, 604)))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step, symptom.last_step) == ("warning", 600, 603)
    assert symptom.numbers["skips_in_a_row"] == 4


@pytest.mark.parametrize("skipped", [range(600, 620), [*range(200, 1000, 40)]])
def test_a_scale_below_one_is_critical(skipped: Sequence[int]) -> None:
    symptom = newest(LossScaleCollapse(), window(*skipped))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("critical", skipped[0])


def test_a_search_that_goes_too_far() -> None:
    symptom = newest(LossScaleCollapse(), window(*range(1, 12)))
    assert symptom is not None
    assert symptom.last_step == COUNT
    assert symptom.numbers["scale_smallest"] == 32.0


def test_too_often_by_the_run_s_own_interval() -> None:
    skipped = (200, 400, 600, 800, 1000, 1100)
    assert newest(LossScaleCollapse(), window(*skipped)) is not None
    short = Window(**{**vars(window(*skipped)), "facts": {"loss_scale_growth_interval": 100.0}})
    assert [s for s in LossScaleCollapse().check(short) if s.numbers["scale_smallest"] > 1024.0] == []


def test_a_low_scale_without_a_skip_is_told_as_such() -> None:
    counts = steps(loss=[2.0] * COUNT, loss_scale=[65536.0] * 600 + [16.0] * (COUNT - 600))
    symptom = newest(LossScaleCollapse(), counts)
    assert symptom is not None
    assert symptom.message == f"the loss scale was 16 from step 601 to {COUNT}"
