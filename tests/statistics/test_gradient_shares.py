from __future__ import annotations

import numpy as np
import pytest

from steadytrain.statistics.gradient_shares import left_the_others


def norms(steps: int = 40, tensors: int = 8) -> np.ndarray:
    rng = np.random.default_rng(0)
    of_step = np.exp(0.5 * rng.standard_normal((steps, 1)))
    return np.exp(np.arange(tensors) - 4.0) * of_step * np.exp(0.1 * rng.standard_normal((steps, tensors)))


def test_a_healthy_run_has_none() -> None:
    assert [left_the_others(norms()[:stop]) for stop in range(41)] == [None] * 41


@pytest.mark.parametrize("factor", [0.0, 0.01, 30.0])
def test_a_tensor_that_leaves_the_others_is_named_within_three_steps(factor: float) -> None:
    sick = norms()
    sick[30:, 5] *= factor
    assert [left_the_others(sick[:stop]) for stop in (30, 31, 33)] == [None, None, 5]


def test_what_all_tensors_share_is_none() -> None:
    together = norms()
    together[30:] *= 100.0
    assert left_the_others(together[:36]) is None


def test_tensors_without_a_gradient_and_few_tensors_are_none() -> None:
    absent = norms()
    absent[30:, 5] = -1.0
    assert left_the_others(absent[:36]) is None
    assert left_the_others(norms(tensors=2)) is None
    assert left_the_others(np.zeros((40, 8))) is None


def test_most_tensors_without_a_gradient_any_more_are_seen() -> None:
    dead = norms()
    dead[30:, :7] = 0.0
    assert left_the_others(dead[:33]) == 0
