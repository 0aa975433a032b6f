"""Test whether two groups of runs differ by more than runs within a group do.

Each run gives one number: its mean loss over the last tenth of the steps that all runs reached. If both sides have the
same seeds, runs are paired, which removes the effect of the seed; otherwise Welch's test applies. The verdict rests on
the confidence interval of the difference. A permutation test is reported beside it, because it assumes no distribution.
With fewer than three runs (or pairs) per side the answer is "cannot tell". So it is if no difference was seen with so
few runs that no arrangement of them could be unusual: "no difference" would claim what was not measured.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from steadytrain.compare.student_t import quantile, two_sided
from steadytrain.core.json_values import JsonValue
from steadytrain.core.model import Series

RUNS_MIN = 3
"""With two runs per side, an interval with one degree of freedom spans 12.7 standard errors to each side, so it is
useless.
"""

CONFIDENCE = 0.95
POWER_Z = 1.96 + 0.84
"""Sum of the normal quantiles for a two-sided 5 % and a power of 80 %."""

TAIL_SHARE = 0.1
TAIL_STEPS_MIN = 10
ARRANGEMENTS_MAX = 100_000
RUNS_NEEDED_MAX = 100_000

Verdict = Literal["differ", "no-difference", "cannot-tell"]


@dataclass(frozen=True)
class Noise(JsonValue):
    """The answer. ``difference`` is the mean of the right group minus that of the left, in units of the loss.

    ``effect`` is the difference over the standard deviation between runs (Hedges' g; of the differences if paired).
    ``smallest`` is the difference that this number of runs detects with 80 % power; ``runs_needed`` is the number per
    side that would detect the measured one.
    """

    verdict: Verdict
    why: str
    method: Literal["paired", "welch"]
    left: str
    right: str
    left_values: tuple[float, ...]
    right_values: tuple[float, ...]
    difference: float | None = None
    interval: tuple[float, float] | None = None
    p: float | None = None
    p_rearranged: float | None = None
    effect: float | None = None
    effect_interval: tuple[float, float] | None = None
    smallest: float | None = None
    runs_needed: int | None = None


def tail_steps(series: Sequence[Series]) -> tuple[int, int] | None:
    """First and last step of the tail that all runs reached, None if they share no step."""
    if any(not len(one) for one in series):
        return None
    first = max(int(one.steps[0]) for one in series)
    last = min(int(one.steps[-1]) for one in series)
    if last < first:
        return None
    length = max(TAIL_STEPS_MIN, math.ceil((last - first + 1) * TAIL_SHARE))
    return max(first, last - length + 1), last


def tail_mean(series: Series, span: tuple[int, int]) -> float | None:
    """Mean over ``span``, None if it has no value or a non-finite one."""
    values = series.between(*span).values
    return float(values.mean()) if len(values) and bool(np.isfinite(values).all()) else None


def next_run_interval(values: Sequence[float], *, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The prediction interval of one more run like those with ``values``: at least ``RUNS_MIN`` finite numbers.

    It assumes that runs scatter normally around their mean, as Welch's test does.
    """
    count = len(values)
    assert count >= RUNS_MIN
    mean, deviation = float(np.mean(values)), float(np.std(values, ddof=1))
    reach = quantile(confidence, count - 1) * deviation * math.sqrt(1 + 1 / count)
    return mean - reach, mean + reach


def seed_noise(
    left: str,
    right: str,
    left_values: Mapping[str, float],
    right_values: Mapping[str, float],
    *,
    confidence: float = CONFIDENCE,
) -> Noise:
    """Compare two groups. Values are keyed by seed if the seed is known, else by the run's name."""
    shared = [key for key in left_values if key in right_values]
    paired = len(shared) == len(left_values) == len(right_values)
    ours = [left_values[key] for key in (shared if paired else left_values)]
    theirs = [right_values[key] for key in (shared if paired else right_values)]
    method: Literal["paired", "welch"] = "paired" if paired else "welch"
    fewest = min(len(ours), len(theirs))
    if fewest < RUNS_MIN:
        what = "pairs" if paired else "runs a side"
        why = f"{fewest} {what}; at least {RUNS_MIN} are needed to separate a difference from seed noise"
        return Noise("cannot-tell", why, method, left, right, tuple(ours), tuple(theirs))
    return (_paired if paired else _welch)(left, right, np.array(ours), np.array(theirs), confidence)


def _paired(left: str, right: str, ours: Any, theirs: Any, confidence: float) -> Noise:
    differences = theirs - ours
    count = len(differences)
    mean, deviation = float(differences.mean()), float(differences.std(ddof=1))
    error = deviation / math.sqrt(count)
    signs = itertools.product((1.0, -1.0), repeat=count)
    p_rearranged = None
    if 2**count <= ARRANGEMENTS_MAX:
        sums = np.array(list(signs)) @ differences
        p_rearranged = float(np.mean(np.abs(sums) >= abs(differences.sum()) * (1 - 1e-12)))
    effect = _corrected(mean, deviation, count - 1)
    spread = math.sqrt(1 / count + effect**2 / (2 * count)) if effect is not None else None
    return _judged(
        ("paired", left, right, ours, theirs, confidence),
        (mean, error, count - 1, deviation),
        p_rearranged,
        effect,
        spread,
        # n pairs detect d when d = 2.8 * sd / sqrt(n - 2): the small-sample form of the usual rule.
        smallest=POWER_Z * deviation / math.sqrt(max(1, count - 2)),
        needed=(POWER_Z * deviation / abs(mean)) ** 2 + 2 if mean else None,
    )


def _welch(left: str, right: str, ours: Any, theirs: Any, confidence: float) -> Noise:
    sizes = len(ours), len(theirs)
    variances = _variance(ours), _variance(theirs)
    mean = float(theirs.mean() - ours.mean())
    parts = [variance / size for variance, size in zip(variances, sizes, strict=True)]
    error = math.sqrt(sum(parts))
    below = sum(part**2 / (size - 1) for part, size in zip(parts, sizes, strict=True))
    freedom = sum(parts) ** 2 / below if below else float(sum(sizes) - 2)
    pooled = math.sqrt(
        sum(variance * (size - 1) for variance, size in zip(variances, sizes, strict=True)) / (sum(sizes) - 2)
    )
    p_rearranged = None
    if math.comb(sum(sizes), sizes[0]) <= ARRANGEMENTS_MAX:
        p_rearranged = _rearranged(np.concatenate([ours, theirs]), sizes[0])
    effect = _corrected(mean, pooled, sum(sizes) - 2)
    spread = (
        math.sqrt(sum(sizes) / (sizes[0] * sizes[1]) + effect**2 / (2 * sum(sizes))) if effect is not None else None
    )
    return _judged(
        ("welch", left, right, ours, theirs, confidence),
        (mean, error, freedom, pooled),
        p_rearranged,
        effect,
        spread,
        smallest=POWER_Z * pooled * math.sqrt(1 / max(1, sizes[0] - 1) + 1 / max(1, sizes[1] - 1)),
        needed=2 * (POWER_Z * pooled / abs(mean)) ** 2 + 2 if mean else None,
    )


def _judged(
    what: tuple[Literal["paired", "welch"], str, str, Any, Any, float],
    numbers: tuple[float, float, float, float],
    p_rearranged: float | None,
    effect: float | None,
    spread: float | None,
    *,
    smallest: float,
    needed: float | None,
) -> Noise:
    method, left, right, ours, theirs, confidence = what
    mean, error, freedom, _ = numbers
    p = two_sided(mean / error, freedom) if error else (0.0 if mean else 1.0)
    reach = quantile(confidence, freedom) * error
    interval = mean - reach, mean + reach
    differs = interval[0] > 0 or interval[1] < 0
    side = "higher" if mean > 0 else "lower"
    runs = None if needed is None else min(RUNS_NEEDED_MAX, math.ceil(needed))
    fewest = min(len(ours), len(theirs))
    too_few = not differs and smallest > 0 and _least_p(method, len(ours), len(theirs)) > 1 - confidence
    if too_few:
        unit = "pairs" if method == "paired" else "runs a side"
        more = "" if runs is None else f"; about {max(fewest + 1, runs):,} {unit} would"
        why = f"{fewest} {unit} cannot show whether the difference of {abs(mean):.4g} is more than seed noise{more}"
    elif differs:
        why = f"{right} ends {abs(mean):.4g} {side} than {left}, more than seed noise"
    else:
        why = f"the groups differ by {abs(mean):.4g}, which is within seed noise; {smallest:.4g} or more would show"
    return Noise(
        verdict="differ" if differs else "cannot-tell" if too_few else "no-difference",
        why=why,
        method=method,
        left=left,
        right=right,
        left_values=tuple(map(float, ours)),
        right_values=tuple(map(float, theirs)),
        difference=mean,
        interval=interval,
        p=p,
        p_rearranged=p_rearranged,
        effect=effect,
        effect_interval=None if effect is None or spread is None else (effect - 1.96 * spread, effect + 1.96 * spread),
        smallest=smallest,
        runs_needed=runs,
    )


def _variance(values: Any) -> float:
    """That of equal values is 0; their mean may be rounded, and then NumPy gives a little more."""
    return float(values.var(ddof=1)) if values.min() != values.max() else 0.0


def _corrected(mean: float, deviation: float, freedom: float) -> float | None:
    """Hedges' g: the standardized difference, corrected for small-sample bias."""
    return mean / deviation * (1 - 3 / (4 * freedom - 1)) if deviation else None


def _least_p(method: str, left: int, right: int) -> float:
    """The smallest p that a test by rearrangement can give with so many runs: both extremes among all arrangements."""
    arrangements = 2.0**left if method == "paired" else float(math.comb(left + right, left))
    return 2.0 / arrangements


def _rearranged(values: Any, size: int) -> float:
    """Share of all splits of the runs whose groups differ at least this much."""
    total, count = values.sum(), len(values)
    chosen = np.array(list(itertools.combinations(range(count), size)))
    means = values[chosen].sum(axis=1) / size
    apart = np.abs((total - means * size) / (count - size) - means)
    observed = abs(values[size:].mean() - values[:size].mean())
    return float(np.mean(apart >= observed * (1 - 1e-12)))
