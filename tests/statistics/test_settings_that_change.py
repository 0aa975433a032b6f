"""A number that the script passes to its model explains a rise if it changed meanwhile by a good part of its range."""

from __future__ import annotations

import numpy as np
import pytest

from steadytrain.statistics.benign_changes import planned_change
from steadytrain.testing import steps
from steadytrain.testing.windows import table

AT = list(range(1, 321, 16))


def explained(values: list[float]) -> str | None:
    rows = table("script", at=AT, value={"setting:p_true": values})
    return planned_change(steps(loss=np.ones(320), tables={"script": rows}), 200, 260)


def test_a_share_that_falls_while_the_loss_rises() -> None:
    falls = [float(np.interp(step, [150, 270], [1.0, 0.0])) for step in AT]
    assert explained(falls) == "the script passes p_true = 0.108 to the model, after 1"


@pytest.mark.parametrize(
    "values",
    [
        [0.5] * len(AT),
        [1.0 if step < 100 else 0.0 for step in AT],  # long before
        [float(step) for step in AT],  # a count of steps
    ],
)
def test_what_explains_nothing(values: list[float]) -> None:
    assert explained(values) is None
