"""Finds the measured quantities that deviated before a symptom, and at which step: robust statistics without torch.

Each quantity is compared with its own past: the median and the median absolute deviation over the last
``REFERENCE_STEPS`` steps. Deviating steps do not enter the reference, so a lasting fault does not become the norm. A
value is off if it exceeds ``Z_MIN`` robust deviations, the quantity's least ratio, and twice the width of the
reference:
there are thousands of tensor norms, and they have tails. A single step counts at twice these thresholds; otherwise
three of four steps must be off.

A growth so slow that the reference follows is detected by its limit (``measures``), and traced back to the last step
with a value like the first ones.

A deviation counts if it leads to the symptom: it lasts until there, or comes right before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from steadytrain.core.model import FloatArray, IntArray
from steadytrain.onset.measures import PHASES, QUANTITIES, Key, Phase
from steadytrain.statistics.reference import MAD_TO_SIGMA

REFERENCE_STEPS = 64
REFERENCE_STEPS_MIN = 12
ANCHOR_STEPS = 16
"""The first measured steps, which are the baseline of a slow growth."""

Z_MIN = 8.0
WIDTHS_MIN = 2.0
SCALE_MIN = 0.05
"""Minimum scale, of a logarithm or of the least difference. Rounding alone makes no quantity quieter."""

SCALE_LEAST = 1e-12

SHIFT_STEPS = 24
SHIFT_SCALES_MIN = 2.5
"""In scales of the reference. For medians of 24 and 64 Gaussian values this is 8 standard errors, for thousands of
places."""

AT_ONCE = 2.0
OF_FOUR = 3
DOUBTFUL = 0.75
"""Share of the threshold from which a value is left out of later references."""

LEADS_STEPS = 3
"""A deviation that is over must come at most this many steps before the symptom."""

AFTER_STEPS = 32
"""Cumulative detectors can date an onset too early, to where their sum last left zero."""

STAYS_SHARE = 0.5
TRACED_Z = 4.0
TRACED_RATIO = 1.5
GROWTH_MIN = 2.0
POSITIVE_SHARE = 0.9
_FAR = 1e6


@dataclass(frozen=True)
class Course:
    """The measurements: ``values`` has shape ``(steps, keys)``, NaN if not measured, Inf if non-finite."""

    steps: IntArray
    keys: tuple[Key, ...]
    values: FloatArray

    def joined(self, later: Course) -> Course:
        """Joins both. Where both have a step, ``later`` wins."""
        keys = tuple(dict.fromkeys((*self.keys, *later.keys)))
        before = self.steps < later.steps[0] if len(later.steps) else np.ones(len(self.steps), np.bool_)
        steps = np.concatenate([self.steps[before], later.steps])
        values = np.full((len(steps), len(keys)), np.nan)
        place = {key: at for at, key in enumerate(keys)}
        count = int(before.sum())
        values[:count, [place[key] for key in self.keys]] = self.values[before]
        values[count:, [place[key] for key in later.keys]] = later.values
        return Course(steps, keys, values)


@dataclass(frozen=True)
class Departure:
    """A quantity that deviated at ``step``: its value there, the value before, and the distance.

    ``z`` is in robust standard deviations. ``slow``: the growth was traced back from its limit, which it passed at step
    ``passed``. ``cut``: it was off from the first measured step, so ``step`` is an upper bound.
    """

    step: int
    key: Key
    value: float
    usual: float
    z: float
    weight: float
    slow: bool = False
    passed: int | None = None
    limit: float | None = None
    cut: bool = False

    @property
    def phase(self) -> Phase:
        return self.key.phase


def departures(course: Course, symptom_step: int) -> tuple[Departure, ...]:
    """All deviations that lead to the symptom at ``symptom_step``, ordered by step, phase and clarity."""
    until = symptom_step + AFTER_STEPS
    rows = int(np.searchsorted(course.steps, until, side="right"))
    course = Course(course.steps[:rows], course.keys, course.values[:rows])
    if not rows or not course.keys:
        return ()
    numbers = _transformed(course)
    found = [
        *_jumps(course, numbers, symptom_step),
        *_shifts(course, numbers, symptom_step),
        *_growths(course, numbers, symptom_step),
    ]
    earliest: dict[Key, Departure] = {}
    for departure in found:
        known = earliest.get(departure.key)
        if known is None or departure.step < known.step:
            earliest[departure.key] = departure
    return tuple(sorted(earliest.values(), key=lambda one: (one.step, PHASES.index(one.phase), -one.weight)))


def reaches_back(found: Sequence[Departure], course: Course) -> bool:
    """Whether enough measured steps precede the first deviation."""
    if not found or not len(course.steps):
        return True
    first = found[0]
    return not first.cut and first.step >= int(course.steps[0]) + REFERENCE_STEPS_MIN


def _transformed(course: Course) -> FloatArray:
    """Logarithms of ratio quantities. Quantities with a bad side are oriented so that higher is worse."""
    numbers = course.values.copy()
    for at, key in enumerate(course.keys):
        if _by_ratio(course, at):
            column = numbers[:, at]
            numbers[:, at] = np.log(np.where(column > 0, column, np.nan))
        if QUANTITIES[key.quantity].direction == "down":
            numbers[:, at] *= -1.0
    return np.clip(numbers, -_FAR, _FAR)


def _by_ratio(course: Course, at: int) -> bool:
    """Whether a column is compared by ratios. A column with zero or negative values (a loss, for example) is not."""
    column = course.values[:, at]
    known = column[~np.isnan(column)]
    return QUANTITIES[course.keys[at].quantity].ratio and bool(np.mean(known > 0) >= POSITIVE_SHARE)


def _jumps(course: Course, numbers: FloatArray, symptom_step: int) -> list[Departure]:
    excess, z, usual = _against_reference(course, numbers)
    off = excess >= 1.0
    clear = excess >= AT_ONCE
    padded = np.concatenate([off, np.zeros((3, off.shape[1]), np.bool_)])
    lasting = off & (sum(padded[shift : shift + len(off)].astype(np.int64) for shift in range(4)) >= OF_FOUR)
    found = []
    for at, key in enumerate(course.keys):
        for row in np.flatnonzero(clear[:, at] | lasting[:, at]).tolist():
            if _leads(course.steps, off[:, at], row, symptom_step):
                level = usual[row, at] * (-1.0 if QUANTITIES[key.quantity].direction == "down" else 1.0)
                finite = bool(np.isfinite(course.values[row, at]))
                found.append(
                    Departure(
                        step=int(course.steps[row]),
                        key=key,
                        value=float(course.values[row, at]),
                        usual=float(np.exp(level)) if _by_ratio(course, at) else float(level),
                        z=float(z[row, at]) if finite else np.inf,
                        weight=float(excess[row, at]),
                    )
                )
                break
    return found


def _leads(steps: IntArray, off: np.ndarray[tuple[int], np.dtype[np.bool_]], row: int, symptom_step: int) -> bool:
    step = int(steps[row])
    if step >= symptom_step - LEADS_STEPS:
        return True
    until = int(np.searchsorted(steps, symptom_step, side="right"))
    return bool(off[row:until].mean() >= STAYS_SHARE)


def _against_reference(course: Course, numbers: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Returns ``excess`` (distance over threshold), ``z`` and the usual value, each (steps, keys), 0 where unknown."""
    least, floor = _least(course, numbers)
    both = np.array([QUANTITIES[key.quantity].direction == "both" for key in course.keys])
    on_course = numbers.copy()
    excess, z, usual = np.zeros_like(numbers), np.zeros_like(numbers), np.zeros_like(numbers)
    median, scale, width = (np.full(numbers.shape[1], np.nan) for _ in range(3))
    for row in range(1, len(numbers)):
        reference = on_course[max(0, row - REFERENCE_STEPS) : row]
        known = np.isfinite(reference).sum(axis=0) >= REFERENCE_STEPS_MIN
        if known.any():
            some = reference[:, known]
            median[known] = _medians(some)
            away = some - median[known]
            scale[known] = np.maximum(MAD_TO_SIGMA * _medians(np.abs(away)), floor[known])
            # Logarithms of norms have a longer lower tail, which is irrelevant for values that are too large.
            width[known] = np.nanmax(np.where(both[known], np.abs(away), away), axis=0)
        away = numbers[row] - median
        away = np.where(both, np.abs(away), away)
        needed = np.maximum(np.maximum(least, Z_MIN * scale), WIDTHS_MIN * width)
        excess[row] = np.nan_to_num(away / needed, nan=0.0)
        z[row] = np.nan_to_num(away / scale, nan=0.0)
        usual[row] = np.nan_to_num(median, nan=0.0)
        on_course[row, excess[row] >= DOUBTFUL] = np.nan
    return excess, z, usual


def _medians(values: FloatArray) -> FloatArray:
    """The median of each column without NaN, which sort to the end. Ten times as fast as ``nanmedian`` on many
    columns."""
    ordered = np.sort(values, axis=0)
    counts = (~np.isnan(values)).sum(axis=0)
    low, high = (counts - 1) // 2, counts // 2
    places = np.arange(values.shape[1])
    medians: FloatArray = 0.5 * (ordered[low, places] + ordered[high, places])
    return medians


def _shifts(course: Course, numbers: FloatArray, symptom_step: int) -> list[Departure]:
    """Lasting shifts, smaller than a jump, in the level of the batches or the loss, which have no rising trend."""
    found = []
    _, floor = _least(course, numbers)
    for at, key in enumerate(course.keys):
        here = np.flatnonzero(np.isfinite(numbers[:, at]))
        if not QUANTITIES[key.quantity].shifts or len(here) < 2 * SHIFT_STEPS:
            continue
        column = numbers[here, at]
        moved = [_moved(column, row, float(floor[at])) for row in range(SHIFT_STEPS, len(column) - SHIFT_STEPS + 1)]
        if QUANTITIES[key.quantity].direction == "both":
            moved = [abs(one) for one in moved]
        row = _edge(column, SHIFT_STEPS + int(np.argmax(moved)))
        step = int(course.steps[here[row]])
        after = column[row:]
        stays = abs(float(np.median(after) - np.median(column[max(0, row - REFERENCE_STEPS) : row])))
        change = abs(float(np.median(after[:SHIFT_STEPS]) - np.median(column[max(0, row - REFERENCE_STEPS) : row])))
        if max(moved) < SHIFT_SCALES_MIN or step > symptom_step + LEADS_STEPS or stays < STAYS_SHARE * change:
            continue
        value = float(np.median(course.values[here[row : row + SHIFT_STEPS], at]))
        usual = float(np.median(course.values[here[max(0, row - REFERENCE_STEPS) : row], at]))
        found.append(Departure(step, key, value, usual, max(moved), max(moved) / SHIFT_SCALES_MIN))
    return found


def _moved(column: FloatArray, row: int, floor: float) -> float:
    """How far the median of the steps from ``row`` on exceeds the median before, in scales of the steps before."""
    before = column[max(0, row - REFERENCE_STEPS) : row]
    level = float(np.median(before))
    scale = max(MAD_TO_SIGMA * float(np.median(np.abs(before - level))), floor)
    return (float(np.median(column[row : row + SHIFT_STEPS])) - level) / scale


def _edge(column: FloatArray, near: int) -> int:
    """Where the means before and after differ most. Medians move while up to half of their steps are still old."""
    rows = range(max(1, near - SHIFT_STEPS), min(len(column) - 1, near + SHIFT_STEPS))
    steps = SHIFT_STEPS
    return max(rows, key=lambda row: abs(column[row : row + steps].mean() - column[max(0, row - steps) : row].mean()))


def _growths(course: Course, numbers: FloatArray, symptom_step: int) -> list[Departure]:
    found = []
    until = int(np.searchsorted(course.steps, symptom_step, side="right"))
    for at, key in enumerate(course.keys):
        quantity = QUANTITIES[key.quantity]
        here = np.flatnonzero(~np.isnan(course.values[:, at]))
        if (quantity.limit is None and quantity.grown is None) or len(here) <= ANCHOR_STEPS:
            continue
        limit = quantity.limit or (quantity.grown or 1.0) * float(np.median(course.values[here[:ANCHOR_STEPS], at]))
        over = course.values[here, at] >= limit
        if not over.any():
            continue
        crossing = int(np.argmax(over))
        later = over[crossing : max(crossing + 1, int(np.searchsorted(here, until)))]
        if float(np.mean(later)) < STAYS_SHARE:
            continue
        anchor = numbers[here[:ANCHOR_STEPS], at]
        if np.max(numbers[here[crossing:], at]) - np.min(anchor) < np.log(GROWTH_MIN):
            continue  # a mask or a constant channel did not grow into its limit
        median = float(np.median(anchor))
        scale = max(MAD_TO_SIGMA * float(np.median(np.abs(anchor - median))), SCALE_MIN)
        bound = median + max(TRACED_Z * scale, float(np.log(TRACED_RATIO)))
        quiet = np.flatnonzero(numbers[here[: crossing + 1], at] <= bound)
        cut = crossing < ANCHOR_STEPS
        row = int(here[0] if cut else here[min(int(quiet[-1]) + 1, crossing)] if len(quiet) else here[0])
        found.append(
            Departure(
                step=int(course.steps[row]),
                key=key,
                value=float(course.values[row, at]),
                usual=float(np.exp(median)),
                z=float((numbers[row, at] - median) / scale),
                weight=float((numbers[here[crossing], at] - median) / (bound - median)),
                slow=True,
                passed=int(course.steps[here[crossing]]),
                limit=limit,
                cut=cut,
            )
        )
    return found


def _least(course: Course, numbers: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The least relevant distance and the least scale of each column."""
    least, floor = [], []
    for at, key in enumerate(course.keys):
        quantity = QUANTITIES[key.quantity]
        if _by_ratio(course, at):
            least.append(float(np.log(quantity.least)))
            floor.append(SCALE_MIN)
        elif quantity.ratio:  # without a fixed scale, use its own
            own = np.abs(numbers[np.isfinite(numbers[:, at]), at])
            least.append(float(np.median(own)) if len(own) else 0.0)
            floor.append(max(SCALE_MIN * least[-1], SCALE_LEAST))
        else:
            least.append(quantity.least)
            floor.append(SCALE_MIN * quantity.least)
    return np.array(least), np.array(floor)
