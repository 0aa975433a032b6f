from __future__ import annotations

from collections.abc import Sequence

import pytest

from steadytrain.core.model import Window
from steadytrain.detectors.scaled_weights import ScaledWeights
from steadytrain.testing import newest, steps
from steadytrain.testing.windows import table

AT = (1, 16, 24, 32)


def norms(*tensors: Sequence[float], at: Sequence[int] = AT, name: str = "weight") -> Window:
    read = table("tensors", at=[*at], weight_norm={f"layer{place}.{name}": one for place, one in enumerate(tensors)})
    return steps(loss=[1.0] * 60, tables={"tensors": read})


def scaled(factor: float, *, of: Sequence[float] = (4.0, 1.0, 0.3, 9.0), name: str = "weight") -> Window:
    return norms(*[[first * factor ** (step - 1) for step in AT] for first in of], name=name)


APART = [[4.0, 6.0, 7.0, 7.5], [1.0, 1.1, 1.1, 1.1], [3.0, 3.0, 2.9, 2.9], [2.0, 3.5, 4.5, 5.0]]
SLOWER = [[one * growth for growth in (1.0, 1.8, 2.0, 2.05)] for one in (0.3, 1.0, 2.0, 3.0)]
NEARLY = [[one * growth for growth in (1.0, 1.2, 1.27, 1.33)] for one in (0.3, 1.0, 2.0, 3.0)]
HEALTHY = (
    steps(loss=[1.0] * 60),
    norms(*APART),
    scaled(1.0005),
    scaled(0.995),
    scaled(1.03, of=(4.0, 1.0, 0.3)),  # too few tensors
    scaled(1.03, name="bias"),
    norms([0.0] * 4, [0.0] * 4, [0.0] * 4, [1.0, 1.6, 2.5, 4.0]),
    norms(*NEARLY),  # small nets grow together by less in their first steps
    norms(*[one[:2] for one in APART], at=(1, 16)),
)


SICK = (scaled(1.03), scaled(0.92))


def test_quiet() -> None:
    assert [ScaledWeights().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


@pytest.mark.parametrize(("factor", "how"), [(1.03, "grew"), (0.92, "shrank"), (0.985, "shrank")])
def test_weights_that_one_factor_moves(factor: float, how: str) -> None:
    symptom = newest(ScaledWeights(), scaled(factor))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step, symptom.last_step) == ("warning", 1, 32)
    assert symptom.message.startswith(f"100% of 4 weight tensors {how} together by {abs(factor - 1):.2g} of their norm")


def test_one_change_is_enough_if_it_is_the_same_for_nearly_all() -> None:
    first = newest(ScaledWeights(), norms(*[[one, one * 1.5] for one in (4.0, 1.0, 0.3, 9.0)], at=(1, 16)))
    assert first is not None
    assert first.message.endswith("from step 1 to 16, to 1.5 times what they were")
    rough = norms(
        *[[one, one * growth] for one, growth in ((4.0, 1.5), (1.0, 1.6), (0.3, 1.4), (9.0, 1.3))], at=(1, 16)
    )
    assert ScaledWeights().check(rough) == ()


def test_growth_that_slows_down_is_one_stretch_at_most() -> None:
    found = newest(ScaledWeights(), norms(*SLOWER))
    assert found is not None
    assert found.last_step == 16
