"""Which of the measured quantities left its course before a symptom, and at which step: robust statistics, no torch.

Every quantity is compared with itself some steps before: median and median absolute deviation of the last
``REFERENCE_STEPS`` steps in which it was on its course, so that a fault that stays does not become its own yardstick.
It is off where it is beyond ``Z_MIN`` robust deviations, beyond its least ratio, and beyond twice the width of its
reference: norms of single tensors have tails, and there are thousands of them. One step counts where it is twice as far
out as it has to be, else three of four.

What grows so slowly that its reference grows along is found by its limit (``measures``) and traced back to the last
step at which it was as in the first ones.

A departure counts where it leads to the symptom: it stays until there, or comes right before it.
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
"""The first steps that were measured: where a slow growth is measured from."""

Z_MIN = 8.0
WIDTHS_MIN = 2.0
SCALE_MIN = 0.05
"""Of a logarithm, or of the least difference: rounding alone makes nothing quieter than that."""

SCALE_LEAST = 1e-12

SHIFT_STEPS = 24
SHIFT_SCALES_MIN = 2.5
"""Of two medians of 24 and 64 Gaussian values, in scales of one: 8 standard errors, in thousands of places."""

AT_ONCE = 2.0
OF_FOUR = 3
DOUBTFUL = 0.75
"""Of what it takes to be off: from here on a value does not enter the reference of those after it."""

LEADS_STEPS = 3
"""A departure that is over again has to come this close before the symptom to belong to it."""

AFTER_STEPS = 32
"""Detectors that add up place an onset some steps too early, where the sum last left zero."""

STAYS_SHARE = 0.5
TRACED_Z = 4.0
TRACED_RATIO = 1.5
GROWTH_MIN = 2.0
POSITIVE_SHARE = 0.9
_FAR = 1e6


@dataclass(frozen=True)
class Course:
    """What was measured: ``values`` has shape ``(steps, keys)``, NaN where nothing was, Inf for what was not finite."""

    steps: IntArray
    keys: tuple[Key, ...]
    values: FloatArray

    def joined(self, later: Course) -> Course:
        """This one and ``later``, whose steps count where both have them."""
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
    """A quantity that left its course at ``step``: its value there, what it was before, and how far that is.

    ``z`` is in robust standard deviations. ``slow``: it was traced back from its limit, which it passed at ``passed``.
    ``cut``: it was off already when measuring began, so the step is a bound.
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
    """All that lead to the symptom whose first step this is: earliest first, in the order of a step, clearest first."""
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
    """Whether the first departure has enough steps before it to be believed."""
    if not found or not len(course.steps):
        return True
    first = found[0]
    return not first.cut and first.step >= int(course.steps[0]) + REFERENCE_STEPS_MIN


def _transformed(course: Course) -> FloatArray:
    """Logarithms of what is compared by ratios, and everything turned so that worse is higher where it has a side."""
    numbers = course.values.copy()
    for at, key in enumerate(course.keys):
        if _by_ratio(course, at):
            column = numbers[:, at]
            numbers[:, at] = np.log(np.where(column > 0, column, np.nan))
        if QUANTITIES[key.quantity].direction == "down":
            numbers[:, at] *= -1.0
    return np.clip(numbers, -_FAR, _FAR)


def _by_ratio(course: Course, at: int) -> bool:
    """Whether a column is compared by ratios: one that is zero or less now and then (a loss may be) is not."""
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
    """How far out each number is, in what it takes to be off; its z; and what was usual. NaN-free: 0 where unknown."""
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
            # Logarithms of norms have a longer tail below, which says nothing of what is too large.
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
    """Of each column, without NaN (which sort to the end): ten times as fast as ``nanmedian`` on many columns."""
    ordered = np.sort(values, axis=0)
    counts = (~np.isnan(values)).sum(axis=0)
    low, high = (counts - 1) // 2, counts // 2
    places = np.arange(values.shape[1])
    medians: FloatArray = 0.5 * (ordered[low, places] + ordered[high, places])
    return medians


def _shifts(course: Course, numbers: FloatArray, symptom_step: int) -> list[Departure]:
    """A level of the batches or the loss that moved by less than a jump, and stays: they have no rising trend."""
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
    """How far the median of the steps from ``row`` on lies above that of those before, in scales of those."""
    before = column[max(0, row - REFERENCE_STEPS) : row]
    level = float(np.median(before))
    scale = max(MAD_TO_SIGMA * float(np.median(np.abs(before - level))), floor)
    return (float(np.median(column[row : row + SHIFT_STEPS])) - level) / scale


def _edge(column: FloatArray, near: int) -> int:
    """Where the means before and after differ most: medians move while up to half of their steps are still others."""
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
            continue  # a mask, a channel that holds a constant: it has not grown into its limit
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
    """The least distance that counts, and the least scale, of each column."""
    least, floor = [], []
    for at, key in enumerate(course.keys):
        quantity = QUANTITIES[key.quantity]
        if _by_ratio(course, at):
            least.append(float(np.log(quantity.least)))
            floor.append(SCALE_MIN)
        elif quantity.ratio:  # of no fixed scale: its own is taken
            own = np.abs(numbers[np.isfinite(numbers[:, at]), at])
            least.append(float(np.median(own)) if len(own) else 0.0)
            floor.append(max(SCALE_MIN * least[-1], SCALE_LEAST))
        else:
            least.append(quantity.least)
            floor.append(SCALE_MIN * quantity.least)
    return np.array(least), np.array(floor)
