from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.detectors.flat_derivative import FlatDerivative
from steadytrain.testing import newest

SICK = (looked(piecewise_derivatives__train_py=[1.0, 1.0, 1.0], second_derivative__train_py=[1.0, 1.0, 1.0]),)
HEALTHY = (
    looked(),
    looked(second_derivative__train_py=[1.0, 1.0, 1.0]),  # of a smooth model
    looked(piecewise_derivatives__train_py=[1.0, 1.0, 1.0]),  # a gradient penalty
    looked(piecewise_derivatives__train_py=[1.0, NAN, NAN], second_derivative__train_py=[1.0, 1.0, 1.0]),
)


def test_quiet() -> None:
    assert [FlatDerivative().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_it_names_the_line_of_the_second_derivative() -> None:
    symptom = newest(FlatDerivative(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert "takes a second derivative of a model whose only activations are straight pieces" in symptom.message
