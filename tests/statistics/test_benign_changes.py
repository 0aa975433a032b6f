from __future__ import annotations

import numpy as np

from steadytrain.statistics.benign_changes import planned_change
from steadytrain.testing import steps
from steadytrain.testing.windows import table


def test_a_script_that_prunes_its_weights_explains_a_rise() -> None:
    loss = np.ones(200)
    code = table("script", at=[1], value={"pruning-code:train.py:7": [1.0]})
    assert planned_change(steps(loss=loss), 100, 120) is None
    assert planned_change(steps(loss=loss, tables={"script": code}), 100, 120) == "the script prunes its weights"
