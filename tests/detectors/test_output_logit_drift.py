from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from steadytrain.core.model import Window
from steadytrain.detectors.output_logit_drift import OutputLogitDrift
from steadytrain.testing import newest, steps
from steadytrain.testing.windows import table

NAN = float("nan")


def window(log_z: Sequence[float], vocabulary: float | None = 50257.0) -> Window:
    at = range(50, 50 * len(log_z) + 1, 50)
    return steps(
        loss=[2.0] * at[-1],
        tables={"modules": table("modules", at=at, log_z_mean={"": log_z})},
        facts={"vocabulary": vocabulary} if vocabulary else {},
    )


GROWS = np.linspace(10.8, 60.0, 12).tolist()

HEALTHY = (
    window([10.8, 10.5, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0, 3.0, 3.0, 3.0, 3.0]),
    window([NAN] * 12),
    window([NAN] * 11 + [400.0]),
    window([-33.0, -33.5, -32.0] * 4),  # a pretrained model without z-loss
    window(np.linspace(2.3, 40.0, 12).tolist(), vocabulary=None),  # a classifier that becomes sure
    window([10.8, 10.0, 90.0, 9.0, 8.0, 90.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0]),
)
SICK = (window(GROWS), window([-value for value in GROWS]), window(np.geomspace(10.8, 900.0, 12).tolist()))


def test_quiet() -> None:
    quiet = [*HEALTHY[:4], HEALTHY[5]]
    assert [OutputLogitDrift().check(sight) for sight in quiet] == [()] * len(quiet)


def test_a_classifier_is_a_note() -> None:
    symptom = newest(OutputLogitDrift(), HEALTHY[4])
    assert symptom is not None
    assert symptom.severity == "note"


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_drift_either_way(sign: float) -> None:
    symptom = newest(OutputLogitDrift(), window([sign * value for value in GROWS]))
    assert symptom is not None
    assert (symptom.severity, symptom.last_step) == ("warning", 600)
    assert symptom.numbers["log_z"] == pytest.approx(sign * 60.0)
    assert 100 <= symptom.first_step <= 200


def test_beyond_all_use_is_critical() -> None:
    symptom = newest(OutputLogitDrift(), SICK[2])
    assert symptom is not None
    assert symptom.severity == "critical"


def test_a_classifier_whose_logits_are_beyond_all_confidence() -> None:
    symptom = newest(OutputLogitDrift(), window(np.geomspace(2.3, 2e6, 12).tolist(), vocabulary=None))
    assert symptom is not None
    assert symptom.severity == "warning"
