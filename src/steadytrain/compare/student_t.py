"""Student's t distribution for a test of means, without SciPy. Tests check it against tables."""

from __future__ import annotations

import math

_TINY = 1e-300
_PRECISION = 1e-14
_TERMS_MAX = 500
_HALVINGS = 200


def two_sided(t: float, freedom: float) -> float:
    """Probability of a value at least as far from 0 as ``t``."""
    if math.isinf(t):
        return 0.0
    return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def quantile(confidence: float, freedom: float) -> float:
    """The t for which ``confidence`` of the distribution lies within -t to t."""
    low, high = 0.0, 1.0
    while two_sided(high, freedom) > 1 - confidence:
        high *= 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided(middle, freedom) > 1 - confidence else (low, middle)
    return (low + high) / 2


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularized incomplete beta function, by its continued fraction (Abramowitz and Stegun 26.5.8)."""
    if x <= 0 or x >= 1:
        return min(1.0, max(0.0, x))
    if x > (a + 1) / (a + b + 2):  # the fraction converges slowly here, but quickly for the other tail
        return 1 - incomplete_beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    upper, lower = 1.0, 1.0 / _away(1 - (a + b) * x / (a + 1))
    value = lower
    for m in range(1, _TERMS_MAX):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        before = value
        for term in (even, odd):
            lower = 1.0 / _away(1 + term * lower)
            upper = _away(1 + term / upper)
            value *= upper * lower
        if abs(value - before) < _PRECISION * abs(value):
            break
    return front * value


def _away(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
