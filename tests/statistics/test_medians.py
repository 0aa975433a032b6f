"""Our medians are NumPy's, to the last bit."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from steadytrain.statistics.medians import SORTED_MAX, median, row_medians

LENGTHS = (1, 2, 3, 4, 5, 16, 33, 64, SORTED_MAX, SORTED_MAX + 1)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize("length", LENGTHS)
def test_a_median_is_that_of_numpy(length: int, dtype: type) -> None:
    draw = np.random.default_rng(length)
    for scale in (1e-300, 1.0, 1e8):
        values = (draw.standard_normal(length) * scale).astype(dtype)
        before = values.copy()
        assert median(values) == float(np.median(values))
        assert (values == before).all()
        assert median(values[::-1]) == float(np.median(values))


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("length", LENGTHS)
def test_what_is_not_finite_counts_as_for_numpy(length: int, odd: float) -> None:
    values = np.random.default_rng(length).standard_normal(length)
    values[length // 2] = odd
    assert median(values) == float(np.median(values)) or np.isnan([median(values), np.median(values)]).all()


def test_the_median_of_nothing_is_none() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        assert np.isnan(median(np.zeros(0)))


@pytest.mark.parametrize("width", [1, 2, 5, 16, 31])
def test_medians_of_rows_are_those_of_numpy(width: int) -> None:
    rows = np.random.default_rng(width).standard_normal((40, width))
    rows[3, width // 2], rows[7, 0] = np.nan, np.inf
    assert np.array_equal(row_medians(rows), np.median(rows, axis=1), equal_nan=True)
    assert row_medians(rows[:0]).shape == (0,)
