"""Student's t against printed tables."""

from __future__ import annotations

import math

import pytest

from steadytrain.compare.student_t import incomplete_beta, quantile, two_sided


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [(1, 12.706205), (2, 4.302653), (3, 3.182446), (4, 2.776445), (10, 2.228139), (30, 2.042272), (1000, 1.962339)],
)
def test_the_quantiles_of_the_tables(freedom: int, expected: float) -> None:
    assert quantile(0.95, freedom) == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize("t", [0.1, 1.0, 3.0, 25.0])
def test_one_degree_of_freedom_is_the_cauchy_distribution(t: float) -> None:
    assert two_sided(t, 1) == pytest.approx(1 - 2 / math.pi * math.atan(t), rel=1e-9)


def test_the_ends() -> None:
    assert two_sided(0.0, 5) == pytest.approx(1.0)
    assert two_sided(math.inf, 5) == 0.0
    assert (incomplete_beta(2, 3, 0.0), incomplete_beta(2, 3, 1.0)) == (0.0, 1.0)
    assert incomplete_beta(2, 3, 0.5) == pytest.approx(0.6875)  # 11/16, by hand
