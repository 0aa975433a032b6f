from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.detectors.mixed_rows import MixedRows
from steadytrain.testing import newest

SICK = (looked(mixed_rows__train_py=[32.0]),)
HEALTHY = (looked(), looked(mixed_rows__train_py=[32.0, 32.0, *[NAN] * 5]))


def test_quiet() -> None:
    assert [MixedRows().check(window) for window in HEALTHY] == [(), ()]


def test_attention_over_the_batch() -> None:
    symptom = newest(MixedRows(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert "takes its 32 places for rows: is batch_first=True missing?" in symptom.message
