from __future__ import annotations

from dataclasses import replace

from script_windows import looked
from steadytrain.core.model import Window
from steadytrain.detectors.unsaved_state import UnsavedState
from steadytrain.testing import newest


def resumed(sure: float = 1.0, level: float = 1.0, count: int = 40) -> Window:
    rows = {"left_out_statistics__self.obs_rms RunningMeanStd": [sure]}
    return looked(count, **rows, level_before__main=[level], spread_before__main=[0.1])


def jumped() -> Window:
    window = resumed()
    loss = window.signals["loss"].copy()
    loss[:4] = 3.0
    return replace(window, signals={**window.signals, "loss": loss})


SICK = (resumed(level=0.5), resumed(0.5, level=0.5), jumped())
HEALTHY = (looked(), resumed(0.5), resumed(0.5, level=0.5, count=31))


def test_quiet() -> None:
    """Nothing is left out; weights alone were saved, and the loss goes on or is not known yet."""
    assert [UnsavedState().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_a_risen_loss_is_a_warning() -> None:
    for window in SICK:
        symptom = newest(UnsavedState(), window)
        assert symptom is not None
        assert symptom.severity == "warning"
        assert "self.obs_rms (RunningMeanStd) is not in the checkpoint: it starts from fresh" in symptom.message


def test_a_loss_that_goes_on_is_a_note() -> None:
    symptom = newest(UnsavedState(), resumed())
    assert symptom is not None
    assert symptom.severity == "note"
