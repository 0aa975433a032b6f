from __future__ import annotations

from steadytrain.core.model import Window
from steadytrain.detectors.stopped_updates import StoppedUpdates
from steadytrain.testing import newest, steps
from steadytrain.testing.windows import table

NAN = float("nan")


def told(passes: list[float], cleared: list[float], again: float = NAN) -> Window:
    """30 updates, then ``passes`` backward passes without one; after it perhaps another update."""
    at = [30] * len(passes) + [31]
    rows = {
        "without-update:train.py:9": [*passes, NAN],
        "discarded:train.py:9": [*cleared, NAN],
        "updates-again:train.py:9": [NAN] * len(passes) + [again],
    }
    return steps(loss=[1.0] * 31, tables={"script": table("script", at=at, value=rows)})


SICK = (told([64.0, 256.0], [63.0, 255.0]), told([1024.0], [0.0]))
HEALTHY = (told([64.0], [0.0]), told([64.0, 256.0], [63.0, 255.0], again=300.0), steps(loss=[1.0] * 40))


def test_gradients_that_are_thrown_away_for_good_are_a_warning() -> None:
    symptom = newest(StoppedUpdates(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step, symptom.numbers["passes"]) == ("warning", 30, 256.0)
    assert "at least 256 backward passes at train.py:9" in symptom.message


def test_a_long_accumulation_is_a_note_until_it_is_very_long() -> None:
    symptom = newest(StoppedUpdates(), HEALTHY[0])
    assert symptom is not None
    assert symptom.severity == "note"
    symptom = newest(StoppedUpdates(), SICK[1])
    assert symptom is not None
    assert symptom.severity == "warning"


def test_it_is_a_note_once_updates_go_on() -> None:
    symptom = newest(StoppedUpdates(), HEALTHY[1])
    assert symptom is not None
    assert symptom.severity == "note"
    assert "updates went on" in symptom.message
