from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.frozen_new_tokens import FrozenNewTokens
from steadytrain.testing import newest

SICK = (looked(frozen_new_tokens__train_py_7=[1.0], frozen_table__embed=[52.0]),)
HEALTHY = (looked(), looked(frozen_new_tokens__train_py_7=[1.0]), looked(frozen_table__embed=[52.0]))


def test_quiet() -> None:
    assert [FrozenNewTokens().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    symptom = newest(FrozenNewTokens(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("train_py_7 gives the table rows for new tokens, and embed is frozen")
