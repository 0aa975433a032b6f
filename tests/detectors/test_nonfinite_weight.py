from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest

from steadytrain.core.model import Window
from steadytrain.detectors.nonfinite_weight import NonfiniteWeight
from steadytrain.testing import newest, steps
from steadytrain.testing.windows import table

NAN = math.nan
EVERY = range(50, 501, 50)


def window(counts: Mapping[str, Sequence[float]], loss: Sequence[float] | None = None, first_step: int = 1) -> Window:
    at = [first_step + step - 1 for step in EVERY]
    values = loss if loss is not None else [2.0 - 0.001 * step for step in range(500)]
    return steps(
        first_step=first_step, loss=values, tables={"tensors": table("tensors", at=at, weight_nonfinite=counts)}
    )


CLEAN = [0.0] * 10
BROKEN = [0.0] * 4 + [7.0] * 6

QUIET = {
    "finite": window({"a": CLEAN, "b": CLEAN}),
    "never measured": window({"a": [NAN] * 10}),
    "measured once": window({"a": [NAN] * 9 + [0.0]}),
}
HEALTHY = (*QUIET.values(), window({"mask": [3.0] * 10, "a": CLEAN}))
SICK = (
    window({"a": CLEAN, "b": BROKEN}),
    window({"a": BROKEN}, loss=[2.0] * 200 + [NAN] * 300),
    window({"a": [7.0] * 10}, loss=[NAN] * 500),
)


@pytest.mark.parametrize("sight", QUIET.values(), ids=QUIET)
def test_quiet(sight: Window) -> None:
    assert NonfiniteWeight().check(sight) == ()


def test_a_mask_that_was_always_infinite_is_a_note() -> None:
    symptom = newest(NonfiniteWeight(), window({"mask": [3.0] * 10, "a": CLEAN}))
    assert symptom is not None
    assert symptom.severity == "note"


def test_it_names_the_tensor_and_the_first_reading() -> None:
    symptom = newest(NonfiniteWeight(), window({"a": CLEAN, "b": BROKEN}))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step, symptom.last_step) == ("critical", 250, 500)
    assert symptom.tensors == ("b",)
    assert symptom.message == "b held NaN or Inf from step 250 to 500: 7 elements"


def test_one_reading_is_enough() -> None:
    symptom = newest(NonfiniteWeight(), window({"a": [0.0] * 9 + [1.0]}))
    assert symptom is not None
    assert (symptom.first_step, symptom.last_step) == (500, 500)


def test_the_tensor_that_began_stands_first_and_a_reading_that_lacks_it_ends_nothing() -> None:
    late = [0.0] * 6 + [1.0] * 4
    symptoms = NonfiniteWeight().check(window({"a": late, "b": [0.0] * 4 + [7.0, NAN, 7.0, 7.0, NAN, 7.0]}))
    assert [symptom.tensors for symptom in symptoms] == [("b", "a")]


def test_a_persistent_fault_keeps_its_name_as_the_window_slides() -> None:
    names = set()
    for at in range(5000, 6000, 16):
        symptom = newest(NonfiniteWeight(), window({"a": [7.0] * 10}, loss=[NAN] * 500, first_step=at))
        assert symptom is not None
        names.add(symptom.first_step // 256)
    assert len(names) <= 5
