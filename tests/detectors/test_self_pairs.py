from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.detectors.self_pairs import SelfPairs
from steadytrain.testing import newest

SAID = {"own_row": "has each row among its own wrong", "equal_views": "compares two views"}
SICK = tuple(looked(**{f"{measure}__train_py": [1.0] * 3}) for measure in SAID)
HEALTHY = (looked(), looked(own_row__train_py=[1.0, 1.0, NAN, NAN]))


def test_quiet() -> None:
    assert [SelfPairs().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_rows_beside_themselves() -> None:
    for window, said in zip(SICK, SAID.values(), strict=True):
        symptom = newest(SelfPairs(), window)
        assert symptom is not None
        assert (symptom.severity, symptom.first_step) == ("warning", 1)
        assert symptom.message.startswith(f"the loss of train_py {said}")
