from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.misnormalized_attention import MisnormalizedAttention
from steadytrain.testing import newest

NOTED = looked(**{"attention_dimension__train.py:7": [2.0]})
ALONE = looked(**{"weights_of_one__train.py:7": [12.0]})
SICK = (looked(**{"causal_attention_dimension__train.py:7": [1.0]}), ALONE)
QUIET = (looked(), looked(softmax_dimension__train=[1.0]), looked(1, attention_dimension__train=[2.0]))
HEALTHY = (*QUIET, NOTED)


def test_quiet() -> None:
    assert [MisnormalizedAttention().check(window) for window in QUIET] == [()] * len(QUIET)


def test_causal_attention_is_a_warning() -> None:
    symptom = newest(MisnormalizedAttention(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert symptom.message == (
        "one causal attention behind the loss of train.py:7 takes softmax over another dimension than the keys"
    )


def test_other_attention_is_a_note() -> None:
    symptom = newest(MisnormalizedAttention(), NOTED)
    assert symptom is not None
    assert symptom.severity == "note"
    assert symptom.message.startswith("2 attentions behind the loss of train.py:7 take softmax")


def test_weights_that_are_all_one_are_a_warning() -> None:
    symptom = newest(MisnormalizedAttention(), ALONE)
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("the softmax over the scores of 12 places, behind the loss of train.py:7, goes")
