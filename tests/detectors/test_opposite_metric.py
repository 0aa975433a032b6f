from __future__ import annotations

import pytest

from script_windows import looked
from steadytrain.core.model import Severity, Window
from steadytrain.detectors.opposite_metric import OppositeMetric
from steadytrain.testing import newest

SICK = (looked(metric_against_mode__min=[1.0, 1.0, 0.5]), looked(metric_against_mode__max=[1.0, 0.1]))
NOTE = looked(metric_against_mode__max=[1.0] * 7)
HEALTHY = (looked(), looked(idle_schedule__ReduceLROnPlateau=[2.0]))


def test_quiet() -> None:
    assert [OppositeMetric().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


@pytest.mark.parametrize(("window", "severity"), [(SICK[0], "warning"), (SICK[1], "warning"), (NOTE, "note")])
def test_a_cut_makes_it_a_warning(window: Window, severity: Severity) -> None:
    symptom = newest(OppositeMetric(), window)
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == (severity, 1)
