from __future__ import annotations

from script_windows import looked
from steadytrain.core.model import Window
from steadytrain.detectors.masked_end import MaskedEnd
from steadytrain.testing import newest


def rows(*shares: float, **evidence: list[float]) -> Window:
    return looked(end_unsupervised__loss=list(shares), end_id__loss=[7.0], **evidence)


READ = {"end_as_padding__train.py:3": [1.0]}
PUT_IN = {"end_put_in__train.py:9": [1.0]}
SICK = (rows(1.0, **READ), rows(1.0, tokenizer_pads__loss=[1.0]))
HEALTHY = (
    looked(),
    rows(0.4, **READ, **PUT_IN),
    rows(0.9, tokenizer_pads__loss=[1.0], **PUT_IN),
    rows(1.0),
    rows(0.9, **READ),
    rows(1.0, 1.0, 0.0, 1.0, **READ),
    rows(1.0, 0.9, **READ),
)


def test_quiet() -> None:
    """No evidence that padding is the end, rows that end with something else, and an end that is a label once."""
    assert [MaskedEnd().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_rows_that_are_cut_before_the_end_that_the_source_puts_in() -> None:
    symptom = newest(MaskedEnd(), rows(0.8, **READ, **PUT_IN))
    assert symptom is not None
    assert "id 7, ends the rows and is never a label" in symptom.message


def test_the_id_is_told() -> None:
    for window, why in zip(
        SICK, ("train.py:3 pads with it", "the tokenizer's pad token is its end token"), strict=True
    ):
        symptom = newest(MaskedEnd(), window)
        assert symptom is not None
        assert symptom.severity == "warning"
        assert "id 7, ends every row and is never a label" in symptom.message
        assert why in symptom.message
