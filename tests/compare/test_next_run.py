"""The interval of one more run like a group's."""

from __future__ import annotations

import numpy as np
import pytest

from steadytrain.compare.seed_noise import next_run_interval


@pytest.mark.parametrize("count", [3, 5, 10])
def test_one_more_run_lies_inside_as_often_as_the_confidence_says(count: int) -> None:
    draws = np.random.default_rng(0).normal(2.0, 0.1, (400, count + 1))
    inside = [low <= one[-1] <= high for one in draws for low, high in [next_run_interval(one[:-1].tolist())]]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.03)
