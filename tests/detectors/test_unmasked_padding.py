from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.detectors.unmasked_padding import UnmaskedPadding
from steadytrain.testing import newest

SICK = (looked(sees_padding__train_py=[0.3, 0.28, 0.3]),)
NOTED = (looked(sees_padding__train_py=[0.11, 0.12]), looked(pools_padding__train_py=[0.4, 0.4]))
UNCAUSAL = looked(sees_padding__train_py=[0.3, 0.3], next_place_seen__train_py=[0.1, 0.1], label_shift__train_py=[1.0])
PREFIX_LM = looked(
    sees_padding__train_py=[0.3, 0.3, 0.3],
    label_shift__train_py=[1.0, 1.0, 1.0],
    next_place_seen__train_py=[0.0, 0.0, 0.0],
)
"""Only a prefix is read from both sides, and padding ends the rows."""

HEALTHY = (looked(), looked(sees_padding__train_py=[0.3, NAN, NAN]), UNCAUSAL, PREFIX_LM)


def test_quiet() -> None:
    assert [UnmaskedPadding().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_attention_that_sees_padding() -> None:
    symptom = newest(UnmaskedPadding(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert "no mask hides it (30% of the places)" in symptom.message


def test_little_padding_and_means_are_notes() -> None:
    for window in NOTED:
        symptom = newest(UnmaskedPadding(), window)
        assert symptom is not None
        assert symptom.severity == "note"
