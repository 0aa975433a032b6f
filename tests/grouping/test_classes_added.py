"""A likelihood with more classes to choose from costs more, and no more than a guess among them."""

from __future__ import annotations

import math

import numpy as np

from steadytrain.core.model import Symptom, Window
from steadytrain.grouping.harmless import is_by_design
from steadytrain.testing import steps
from steadytrain.testing.windows import table

AT = 200


def window(rise: float, classes: tuple[float, float] | None = (17.0, 65.0)) -> Window:
    """A loss that rises at ``AT``, where a likelihood may have got more classes."""
    loss = np.full(400, 1.7)
    loss[AT:] += rise
    if classes is None:
        return steps(loss=loss)
    rows = {
        f"{name}:train.py:7": [value] for name, value in zip(("classes-before", "more-classes"), classes, strict=True)
    }
    return steps(loss=loss, tables={"script": table("script", at=[AT + 1], value=rows)})


def symptom(name: str = "divergence") -> Symptom:
    return Symptom(name, "critical", AT + 1, 400, "the loss rises")


def test_a_rise_as_large_as_a_guess_costs_is_explained() -> None:
    told = is_by_design(window(0.9 * math.log(65 / 17)), symptom())
    assert told == (
        "the likelihood has 65 classes to choose from since step 201, after 17: a guess among them costs 1.3 nats more"
    )
    assert "more classes" in is_by_design(window(1.0), symptom("plateau"))


def test_a_larger_rise_and_one_without_more_classes_are_not() -> None:
    assert is_by_design(window(3.0), symptom()) == ""
    assert is_by_design(window(1.0, None), symptom()) == ""
    assert is_by_design(window(1.0, None), symptom("plateau")) == ""
