"""Combines the numbers of single calls into one row per module: plain Python on the host, no tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from steadytrain.capture.tensors.activations.module_columns import DTYPES

SAMPLED_STD_ABOVE = 30.0
"""If |mean| exceeds this many standard deviations, float32 sums are too inexact for the variance."""


@dataclass(frozen=True)
class Call:
    """The statistics of one output. ``dtype`` is without ``torch.``, ``dtype_max`` is its largest number."""

    dtype: str
    dtype_max: float
    squares: float
    smallest: float
    largest: float
    sum: float
    nonfinite: float
    finite: float
    sample_std: float
    kurtosis: float
    zero_share: float


def module_row(calls: Sequence[Call]) -> dict[str, float]:
    """The columns of a module from its calls (at least one); ``COLUMNS`` describes how several are combined."""
    last = calls[-1]
    row = {
        "nonfinite": sum(call.nonfinite for call in calls),
        "dtype": float(DTYPES.index(last.dtype)) if last.dtype in DTYPES else math.nan,
    }
    calls = [call for call in calls if call.finite]
    count = sum(call.finite for call in calls)
    if not count:
        return row
    mean = sum(call.sum for call in calls) / count
    return {
        **row,
        "mean": mean,
        "std": _std(calls, mean, count),
        "abs_max": max(_abs_max(call) for call in calls),
        "headroom": max(_abs_max(call) / call.dtype_max for call in calls),
        "kurtosis": sum(call.kurtosis * call.finite for call in calls) / count,
        "zero_share": sum(call.zero_share * call.finite for call in calls) / count,
    }


def _std(calls: Sequence[Call], mean: float, count: float) -> float:
    variance = sum(call.squares for call in calls) / count - mean * mean
    if math.isfinite(variance) and variance > (mean / SAMPLED_STD_ABOVE) ** 2:
        return math.sqrt(variance)
    means = [call.sum / call.finite for call in calls]
    spread = ((call.sample_std**2 + (own - mean) ** 2) * call.finite for call, own in zip(calls, means, strict=True))
    return math.sqrt(sum(spread) / count)


def _abs_max(call: Call) -> float:
    return max(abs(call.smallest), abs(call.largest))


def _largest(values: Sequence[float]) -> float:
    """The largest value; NaN if any is NaN."""
    return math.nan if any(math.isnan(value) for value in values) else max(values)


@dataclass(frozen=True)
class Heads:
    """The statistics of one attention call."""

    entropy: float
    entropy_min: float
    logit_max: float


def heads_row(calls: Sequence[Heads]) -> dict[str, float]:
    """The attention columns of a module from its attention calls."""
    if not calls:
        return {}
    entropies = [call.entropy for call in calls]
    lowest = min(call.entropy_min for call in calls)
    return {
        "attention_entropy": sum(entropies) / len(entropies),
        "attention_entropy_min": lowest if math.isfinite(lowest) else math.nan,
        "attention_logit_max": _largest([call.logit_max for call in calls]),
    }
