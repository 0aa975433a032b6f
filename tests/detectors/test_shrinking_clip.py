"""A clip limit that only falls is reported, one that falls with the gradients is not."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import ArrayLike

from steadytrain.core.model import Window
from steadytrain.detectors.shrinking_clip import ShrinkingClip
from steadytrain.testing import newest, steps
from steadytrain.testing.windows import table

LOOKS = 24
FALLING = 0.85 ** np.arange(LOOKS)
NOISE = np.exp(0.2 * np.random.default_rng(0).standard_normal(LOOKS))


def clipped(limits: ArrayLike, norms: ArrayLike) -> Window:
    """Looks in every 16th step at gradients of these norms, clipped at these limits."""
    limit, norm = np.broadcast_arrays(np.asarray(limits, float), np.asarray(norms, float))
    at = range(1, 16 * len(limit), 16)
    rows = {
        "left-by-clip:gradients": np.minimum(1.0, limit / norm).tolist(),
        "norm-before-clip:gradients": norm.tolist(),
    }
    return steps(loss=[1.0] * at[-1], tables={"script": table("script", at=at, value=rows)})


SICK = (
    clipped(0.3 * FALLING, 0.3 * NOISE),
    clipped(0.3 * np.maximum(FALLING, 0.02), 0.3 * NOISE),  # it stays there
    clipped(0.3 * FALLING, 0.3 * NOISE * np.linspace(1, 2, LOOKS)),
    clipped(0.3 * np.append([20, 10, 5], FALLING), 0.3 * np.append([20, 12, 6], NOISE)),  # long gradients at first
)
HEALTHY = (
    clipped(0.3, 0.6 * NOISE),
    clipped(0.3 * FALLING, 0.6 * FALLING * NOISE),  # gradients fall, and the limit with them
    clipped(0.3, 0.6 * NOISE * np.linspace(1, 50, LOOKS)),  # gradients grow
    clipped(0.3 * NOISE * np.linspace(1, 0.3, LOOKS), NOISE),
    clipped((0.3 * FALLING)[:5], 0.3),  # too few looks
    clipped(0.0, 0.3 * NOISE),  # the gradients are cleared
    steps(loss=[1.0] * 40),
)


@pytest.mark.parametrize("window", SICK)
def test_a_limit_that_only_falls(window: Window) -> None:
    symptom = newest(ShrinkingClip(), window)
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert symptom.message.startswith("the limit at which gradients are clipped only falls: from ")
    assert symptom.numbers["limit"] < 0.03


def test_quiet() -> None:
    assert [ShrinkingClip().check(window) for window in HEALTHY] == [()] * len(HEALTHY)
