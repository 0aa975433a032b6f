"""Log2 histograms of magnitudes, against NumPy in float64."""

from __future__ import annotations

import math

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hard_tensors import INF, NAN, tensors, values_of
from steadytrain.capture.tensors.statistics import HISTOGRAM_COLUMNS, log2_histogram
from steadytrain.capture.tensors.statistics.sample_chunks import plan_for


def expected(tensor: Tensor) -> dict[str, float]:
    """Shares by column."""
    counts = dict.fromkeys(HISTOGRAM_COLUMNS, 0)
    for value in values_of(tensor).tolist():
        if not math.isfinite(value):
            counts["nonfinite"] += 1
        elif value == 0:
            counts["zero"] += 1
        else:
            power = math.frexp(abs(value))[1] - 1
            counts["below" if power < -40 else "above" if power > 23 else f"2^{power}"] += 1
    return {column: count / tensor.numel() for column, count in counts.items()}


@given(many=st.lists(tensors(), max_size=5), size_max=st.sampled_from((64, 16_384)))
@settings(max_examples=150)
def test_any_tensors(many: list[Tensor], size_max: int) -> None:
    readback = log2_histogram([(f"weight:{at}", tensor) for at, tensor in enumerate(many)], size_max=size_max)
    assert readback.ready()
    reading = readback.result()
    assert reading.table == "histograms"
    assert reading.columns == HISTOGRAM_COLUMNS
    assert reading.rows == tuple(f"weight:{at}" for at, tensor in enumerate(many) if tensor.numel())
    for row, tensor in zip(reading.values, [tensor for tensor in many if tensor.numel()], strict=True):
        sample = plan_for(tensor, size_max).view(tensor)
        assert np.allclose(row, list(expected(sample).values()), atol=1e-7)
        assert row.sum() == np.float32(1.0) or abs(row.sum() - 1.0) < 1e-6


def test_edges_of_the_bins() -> None:
    values = [0.0, -0.0, 2.0**-41, 2.0**-40, -1.0, 1.999, 2.0**24 * 0.999, 2.0**24, NAN, -INF]
    (row,) = log2_histogram([("activation:block", torch.tensor(values))]).result().values
    found = {column: round(share * 10) for column, share in zip(HISTOGRAM_COLUMNS, row, strict=True) if share}
    assert found == {"zero": 2, "below": 1, "2^-40": 1, "2^0": 2, "2^23": 1, "above": 1, "nonfinite": 2}


def test_the_sign_has_rows_of_its_own() -> None:
    values = torch.tensor([1.0, -1.0, 3.0, -3.0, 0.25, 0.0, -INF, NAN])
    rows = [("gradient:a", values), ("weight:b", values.half()), ("weight:c", torch.arange(3))]
    reading = log2_histogram(rows, with_sign=True).result()
    assert reading.rows == ("gradient:a", "weight:b", "gradient+:a", "weight+:b")
    for row in (0, 1):
        assert np.array_equal(reading.values[row], log2_histogram(rows).result().values[row])
        positive = zip(HISTOGRAM_COLUMNS, (8 * reading.values[2 + row]).tolist(), strict=True)
        found = {column: count for column, count in positive if count}
        assert found == {"zero": 4.0, "2^-2": 1.0, "2^0": 1.0, "2^1": 1.0, "nonfinite": 1.0}


def test_what_holds_no_floats_has_no_row() -> None:
    rows = [("a", torch.arange(3)), ("b", torch.ones(2, requires_grad=True)), ("c", torch.ones(2, device="meta"))]
    reading = log2_histogram(rows).result()
    assert reading.rows == ("b",)
    assert log2_histogram([]).result().values.shape == (0, len(HISTOGRAM_COLUMNS))
