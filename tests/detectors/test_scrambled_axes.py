from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.detectors.scrambled_axes import ScrambledAxes
from steadytrain.testing import newest

VIEW = "scrambled_view__rowsx32x50>rowsx50x32:train.py:9"
SICK = (
    looked(**{VIEW: [1.0, 1.0, 1.0]}),
    looked(**{VIEW: [1.0, 1.0, 1.0], "swapped_sizes__train.py:4": [1.0]}),
    looked(**{"sorted_otherwise__train.py:6": [1.0]}),
    looked(**{"interleaved_channels__train.py:9": [0.4, 0.3, 0.4]}),
    looked(**{"folded_stream__train.py:9": [1.0]}),
)
HEALTHY = (looked(), looked(**{VIEW: [1.0, 1.0, NAN]}), looked(**{"swapped_sizes__train.py:4": [1.0]}))


def test_quiet() -> None:
    """Sizes in another order alone are no mistake: an axis of size one may be moved so."""
    assert [ScrambledAxes().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_shapes_and_the_line_are_told() -> None:
    told = [symptom.message for window in SICK if (symptom := newest(ScrambledAxes(), window)) is not None]
    assert told[0] == (
        "a view before the loss of train.py:9 makes [rows, 50, 32] of [rows, 32, 50] and moves no value; "
        "to exchange axes takes permute"
    )
    assert told[1].startswith("the view of train.py:4 makes [rows, 50, 32]")
    assert told[2] == "train.py:6 makes a table of records that are sorted by the other key first"
    assert "channels side by side" in told[3]
    assert told[4].startswith("train.py:9 folds a stream with neighbours side by side")
