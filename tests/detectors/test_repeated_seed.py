from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.repeated_seed import RepeatedSeed
from steadytrain.testing import newest

SICK = (looked(repeated_seed__train_py_7=[1.0]),)
HEALTHY = (looked(),)


def test_quiet() -> None:
    assert [RepeatedSeed().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    symptom = newest(RepeatedSeed(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("train_py_7 gives a random generator the same seed in every step")


def test_seeds_of_rows_and_of_workers() -> None:
    for kind, said in (("row_seed", "for each row"), ("worker_seed", "by its number alone")):
        symptom = newest(RepeatedSeed(), looked(**{f"{kind}__train_py_7": [1.0]}))
        assert symptom is not None
        assert symptom.severity == "warning"
        assert said in symptom.message
