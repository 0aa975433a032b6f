"""What is known of a series is taken over as it grows, and changes nothing."""

from __future__ import annotations

import numpy as np
import pytest

from steadytrain.core.model import FloatArray
from steadytrain.statistics import progress
from steadytrain.statistics.progress import LEVEL_ROWS, levels_of, rise_at

GROWN = (6, 7, 8, 15, 16, 17, 40, 41, 96, 200, 200, 333, 900)


def series(seed: int) -> FloatArray:
    draw = np.random.default_rng(seed)
    loss: FloatArray = 3.0 * np.exp(-np.arange(900) / 80.0) + 0.2 + 0.1 * draw.standard_normal(900)
    loss[40:46] += 4.0
    loss[300:350] += 2.0 if seed % 2 else -1.0
    loss[880:] += 5.0
    return loss


def plain(values: FloatArray) -> list[object]:
    levels = levels_of(values)
    high = np.flatnonzero(levels.now > levels.best)
    rises = [(rise, evidence.tolist()) for rise, evidence in (rise_at(levels, int(row)) for row in high[::7])]
    arrays = (levels.now, levels.best, levels.scale, levels.best_stop)
    return [levels.start, rises, *(array.tolist() for array in arrays)]


@pytest.mark.parametrize("seed", range(4))
def test_a_series_that_grows_has_the_levels_and_rises_of_one_seen_at_once(seed: int) -> None:
    progress._KNOWN.clear()
    grown = [plain(series(seed)[:count]) for count in GROWN]
    for count, found in zip(GROWN, grown, strict=True):
        progress._KNOWN.clear()
        assert plain(series(seed)[:count]) == found


def test_another_series_takes_nothing_over() -> None:
    progress._KNOWN.clear()
    first, other = series(0)[:200], series(0)[:300].copy()
    other[LEVEL_ROWS + 1] += 0.5
    plain(first)
    found = plain(other)
    progress._KNOWN.clear()
    assert plain(other) == found


def test_a_series_that_was_changed_after_the_look_is_looked_at_anew() -> None:
    progress._KNOWN.clear()
    values = series(1)[:200].copy()
    plain(values)
    values[150] += 3.0
    found = plain(values)
    progress._KNOWN.clear()
    assert plain(values) == found
