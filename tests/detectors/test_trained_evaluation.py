from __future__ import annotations

from dataclasses import replace

from script_windows import looked
from steadytrain.detectors.trained_evaluation import TrainedEvaluation
from steadytrain.testing import newest

SICK = (looked(held_out_trained__val_loader=[512.0]),)
HEALTHY = (looked(), replace(SICK[0], facts={"moving_targets": 1.0}))


def test_quiet() -> None:
    assert [TrainedEvaluation().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_rows_of_training() -> None:
    symptom = newest(TrainedEvaluation(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("the 512 rows of the evaluation of val_loader were all trained on before")
