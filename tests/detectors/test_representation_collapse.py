from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from steadytrain.core.model import FloatArray, Window
from steadytrain.detectors.representation_collapse import RepresentationCollapse
from steadytrain.testing import healthy_loss, newest, steps
from steadytrain.testing.windows import table

NAN = float("nan")
FLAT = healthy_loss(800, decay_steps=5)
FALLING = healthy_loss(800, decay_steps=500)


def window(*rows: Sequence[float], loss: FloatArray = FLAT, names: tuple[str, ...] = ("", "a", "b", "c")) -> Window:
    values = dict(zip(names, rows, strict=False))
    return steps(loss=loss, tables={"modules": table("modules", at=range(50, 801, 50), std=values)})


ONE = [1.0, 1.1, 0.9, 1.0, 1.2, 1.0, 0.9, 1.0] * 2
GONE = [*ONE[:8], 0.3, 0.1, 0.02, 1e-3, 1e-3, 1e-4, 1e-4, 1e-4]

HEALTHY = (
    window(ONE, ONE),
    window([NAN] * 16, [NAN] * 16),
    window([NAN] * 15 + [1e-9]),
    window(ONE, np.geomspace(1.0, 0.05, 16).tolist()),
    window(ONE, [*ONE[:6], 1e4, *ONE[7:]]),  # after a spike all is as before
    window(ONE, [*ONE[:8], 1e-5, *ONE[9:]]),  # one constant batch
    window(ONE, GONE, loss=FALLING),
    window([1e-4] * 16),
)
SICK = (window(ONE, GONE, ONE, ONE), window(GONE, ONE, ONE, ONE))


def test_quiet() -> None:
    quiet = (*HEALTHY[:6], HEALTHY[7])
    assert [RepresentationCollapse().check(sight) for sight in quiet] == [()] * len(quiet)


def test_one_module_is_a_warning() -> None:
    symptom = newest(RepresentationCollapse(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.tensors, symptom.first_step) == ("warning", ("a",), 600)
    assert symptom.numbers["std_before"] == 1.0


def test_the_output_of_the_model_is_critical() -> None:
    symptom = newest(RepresentationCollapse(), SICK[1])
    assert symptom is not None
    assert symptom.severity == "critical"
    assert "the model's output" in symptom.message


def test_with_a_falling_loss_it_is_a_note() -> None:
    symptom = newest(RepresentationCollapse(), HEALTHY[6])
    assert symptom is not None
    assert symptom.severity == "note"
