from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.inverted_mask import InvertedMask
from steadytrain.testing import newest

PADDING = looked(**{"attends_padding__train.py": [2.0]})
AHEAD = looked(**{"attends_ahead__train.py": [4.0]})
SICK = (PADDING, AHEAD)
HEALTHY = (looked(), looked(count=1, **{"attends_ahead__train.py": [4.0]}), looked(**{"causal__train.py": [1.0]}))


def test_quiet() -> None:
    assert [InvertedMask().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_what_it_sees() -> None:
    symptoms = [newest(InvertedMask(), window) for window in SICK]
    assert [one.severity for one in symptoms if one is not None] == ["warning", "warning"]
    wrong = ": its mask has the wrong sign"
    assert [one.message for one in symptoms if one is not None] == [
        f"attention behind the loss of train.py sees the padding of each row and none of its tokens{wrong} (2 in all)",
        f"attention behind the loss of train.py sees later places only, and no earlier one{wrong} (4 in all)",
    ]
