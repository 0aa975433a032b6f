from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.detectors.rounded_ids import RoundedIds
from steadytrain.testing import newest

SICK = (
    looked(ids_in_float16__train_py_9=[900.0, 950.0, 940.0]),
    looked(ids_in_bfloat16__train_py_9=[30.0, 31.0, 28.0]),
)
HEALTHY = (
    looked(),
    looked(ids_in_float16__train_py_9=[900.0, 950.0, *[NAN] * 5]),  # too few looks
)


def test_quiet() -> None:
    assert [RoundedIds().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_ids_that_16_bits_can_hold() -> None:
    for window, said in zip(SICK, ("ids above 2,048", "ids above 256"), strict=True):
        symptom = newest(RoundedIds(), window)
        assert symptom is not None
        assert (symptom.severity, symptom.first_step) == ("warning", 1)
        assert said in symptom.message
