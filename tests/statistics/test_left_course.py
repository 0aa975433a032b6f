"""Where the loss left its course before a step that was refused."""

from __future__ import annotations

import numpy as np
import pytest

from steadytrain.statistics.run_away import left_course_at
from trial_cases import window

LEVEL = [0.05 + 0.01 * (-1) ** step for step in range(80)]


@pytest.mark.parametrize(
    ("losses", "left_at"),
    [
        ([*LEVEL, 5.0, 1e5, 1e15, 1e25], 81),
        ([*LEVEL, *(0.05 * 2.0**k for k in range(30))], 85),
        ([*LEVEL, 0.2, 0.3], None),
        ([*LEVEL, 5.0], None),
        ([*LEVEL[:40], 1e5, *LEVEL[40:]], None),  # it came back
        ([1e6, *LEVEL, 100.0], None),  # it began higher
        ([0.0] * 20 + [5.0], None),
        ([1e5], None),
        ([], None),
    ],
)
def test_a_climb_that_goes_on_until_the_step_is_named_by_its_start(losses: list[float], left_at: int | None) -> None:
    assert left_course_at(window([*losses, np.inf]), len(losses) + 1) == left_at
