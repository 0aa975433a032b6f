from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.overwritten_rows import OverwrittenRows
from steadytrain.testing import newest

SICK = (looked(overwritten_rows__train_py_7=[1.0]), looked(overwritten_data__Words_cache=[9.0, 12.0]))
HEALTHY = (looked(), looked(split_fit__train_py_7=[1.0]), looked(overwritten_data__Words_cache=[7.0]))


def test_quiet() -> None:
    assert [OverwrittenRows().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    symptom = newest(OverwrittenRows(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("train_py_7 changes a stored row in place")


def test_what_was_seen_to_change_is_named_where_the_source_does_not_show_it() -> None:
    symptom = newest(OverwrittenRows(), SICK[1])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("reading a row changes it in Words_cache: 12 reads did")
