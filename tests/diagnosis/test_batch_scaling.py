"""A rate that outgrows the batch is reported. A rate that follows a scaling rule is not."""

from __future__ import annotations

import numpy as np
import pytest

from steadytrain.core.model import FloatArray
from steadytrain.diagnosis.batch_scaling import rate_beyond_batches
from steadytrain.testing import steps

COUNT = 400
STEP = np.arange(1, COUNT + 1)
BATCH = np.select([STEP <= 150, STEP <= 260, STEP <= 370], [16.0, 32.0, 64.0], 128.0)


def said(rate: FloatArray, batch: FloatArray = BATCH, onset: int = 380) -> str | None:
    return rate_beyond_batches(steps(loss=np.ones(COUNT), learning_rate=rate, samples=batch), onset)


def test_factors_of_the_first_batch_that_compound_are_told_with_both_growths() -> None:
    rate = np.select([STEP <= 150, STEP <= 260, STEP <= 370], [0.007, 0.014, 0.056], 0.448)
    told = said(rate)
    assert told is not None
    assert told.startswith("the batch grew from 16 to 128 samples (8 times), the rate from 0.007 to 0.448 (64 times)")
    assert said(rate, onset=300) is not None  # 4 times the batch, 8 times the rate
    assert said(rate, onset=200) is None  # so far linear


@pytest.mark.parametrize(
    "rate",
    [
        0.007 * BATCH / 16,
        0.007 * np.sqrt(BATCH / 16),
        np.full(COUNT, 0.007),
        np.minimum(1.0, STEP / 100) * 0.007 * BATCH / 16,  # with a warm-up before the batch grows
        np.full(COUNT, np.nan),
        np.zeros(COUNT),
    ],
)
def test_a_rate_that_keeps_to_a_rule_is_not(rate: FloatArray) -> None:
    assert said(rate) is None


@pytest.mark.parametrize("batch", [np.full(COUNT, 16.0), np.full(COUNT, np.nan), np.where(STEP % 20, 16.0, 7.0)])
def test_nothing_is_said_without_a_batch_that_grew(batch: FloatArray) -> None:
    assert [said(0.007 * np.exp2(STEP // 100), batch, onset) for onset in (380, 381)] == [None, None]
