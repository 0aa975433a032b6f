from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.separate_orders import SeparateOrders
from steadytrain.testing import newest

SICK = (
    looked(separate_orders__train_py_7=[1.0]),
    looked(half_sorted__train_py_7=[1.0]),
    looked(separate_splits__train_py_7=[1.0]),
)
NOTED = looked(unsorted_listing__train_py_7=[1.0])
HEALTHY = (looked(), looked(policy_code__train_py=[1.0]))


def test_quiet() -> None:
    assert [SeparateOrders().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    symptom = newest(SeparateOrders(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert symptom.message.startswith("train_py_7 ")
    assert "labels of other rows" in symptom.message


def test_other_ways_are_told_by_their_own_words() -> None:
    said = [newest(SeparateOrders(), window) for window in (*SICK[1:], NOTED)]
    assert [one.severity for one in said if one] == ["warning", "warning", "note"]
    assert [one.message.split(" ")[1] for one in said if one] == ["lists", "splits", "pairs"]
