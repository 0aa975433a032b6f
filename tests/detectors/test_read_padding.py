from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.detectors.read_padding import ReadPadding
from steadytrain.testing import newest

SICK = (looked(padded_end__train_py_7=[0.8, 0.9, 0.75]),)
HEALTHY = (looked(), looked(padded_end__train_py_7=[0.8, 0.9, NAN]))


def test_quiet() -> None:
    """Two batches may end alike by chance."""
    assert [ReadPadding().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_share_of_rows_is_told() -> None:
    symptom = newest(ReadPadding(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert "padding in 75% of the rows" in symptom.message
