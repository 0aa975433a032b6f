from __future__ import annotations

from collections.abc import Sequence

from steadytrain.core.model import Window
from steadytrain.detectors.vanishing_weights import VanishingWeights
from steadytrain.testing import newest, steps
from steadytrain.testing.windows import table

AT = (1, 16, 32, 48)


def norms(first: int = 1, **of: Sequence[float]) -> Window:
    read = table("tensors", at=[first, *AT[1:]], weight_norm={name.replace("__", "."): of[name] for name in of})
    return steps(loss=[1.0] * 60, tables={"tensors": read})


SHRINKS = [4.0, 1.0, 0.3, 0.1]
STAYS = [4.0, 4.0, 4.1, 3.9]
SICK = (
    norms(a__weight=SHRINKS, b__weight=SHRINKS),
    norms(a__weight=SHRINKS, b__weight=SHRINKS, c__weight=STAYS, d__weight=STAYS, a__bias=STAYS, b__bias=STAYS),
)
HEALTHY = (
    steps(loss=[1.0] * 60),
    norms(a__weight=STAYS, b__weight=STAYS),
    norms(a__weight=SHRINKS),
    norms(a__weight=SHRINKS, b__weight=STAYS, c__weight=STAYS),
    norms(a__bias=SHRINKS, b__bias=SHRINKS, a__weight=STAYS, b__weight=STAYS),
    norms(a__weight=[0.0, 1.0, 2.0, 3.0], b__weight=[0.0, 1.0, 2.0, 3.0]),
    norms(a__weight=[4.0, 3.0, 2.0, 1.0], b__weight=[4.0, 3.0, 2.0, 1.0]),
)


def test_quiet() -> None:
    assert [VanishingWeights().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_weights_that_shrink() -> None:
    symptom = newest(VanishingWeights(), SICK[1])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step, symptom.tensors) == ("warning", 32, ("a.weight", "b.weight"))
    lost = "2 of 4 weight tensors have lost nine tenths of their norm by step 32"
    assert symptom.message == f"{lost}: a.weight shrank to 0.075 of its first norm"


def test_a_first_reading_that_is_late_says_nothing() -> None:
    late = norms(first=40, a__weight=SHRINKS[:1] * 4, b__weight=SHRINKS[:1] * 4)
    assert VanishingWeights().check(late) == ()
