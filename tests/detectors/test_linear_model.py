from __future__ import annotations

import numpy as np
import pytest

from script_windows import LOOKS, NAN, looked
from steadytrain.core.model import Severity, Window
from steadytrain.detectors.linear_model import LinearModel
from steadytrain.testing import newest, steps
from steadytrain.testing.windows import table


def run(losses: np.ndarray) -> Window:
    at = [step for step in LOOKS if step <= len(losses)]
    rows = {"linear-layers:train.py:7": [3.0] * len(at)}
    return steps(loss=losses, tables={"script": table("script", at=at, value=rows)})


STAYS = run(np.full(160, 0.693))
SICK = (STAYS,)
HEALTHY = (looked(), looked(linear_layers__train_py=[3.0, NAN, NAN]))


def test_quiet() -> None:
    assert [LinearModel().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


@pytest.mark.parametrize(
    ("window", "severity"),
    [
        (STAYS, "warning"),
        (run(np.full(60, 0.693)), "note"),
        (run(np.linspace(2.0, 0.5, 160)), "note"),
    ],
    ids=["the loss stays", "a few steps", "the loss falls"],
)
def test_it_is_a_warning_where_the_loss_stays(window: Window, severity: Severity) -> None:
    symptom = newest(LinearModel(), window)
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == (severity, 1)
    assert symptom.message.startswith("nothing nonlinear stands between the 3 layers behind the loss of train.py:7")
