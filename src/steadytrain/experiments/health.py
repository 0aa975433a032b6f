"""Whether a trial brought the run back to health, or only made the symptom smaller or later. Pure.

A symptom that is smaller than in the control is no cure: a loss of 1e20 in place of 1e22 is as useless. So a trial that
*removes* a symptom must end where the run was before it: over the whole horizon every value is finite, and loss and
gradient norm lie within the run's own range before the onset. Where there is no "before" (the run was sick from its
first steps), the trial itself is the reference: the same start with the change applied must look healthy, which means
that its loss falls or stays near its start.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steadytrain.experiments.case import Case
from steadytrain.experiments.outcome_measures import (
    SPIKE_NOISES,
    excess_in,
    noise_floor,
    place_of,
    probe_means,
    steps_before_onset,
)
from steadytrain.experiments.specs import UNCHANGED, Outcome, StepSeen
from steadytrain.experiments.trial_starts import EARLY_ONSET

BEFORE_MIN, BEFORE_MAX = 8, 64
"""The range before the onset is taken from at least and at most this many of the last steps before it."""

UPPER_QUANTILE = 0.95
"""Quantile of the losses before the onset that ends their usual range; one minus it begins it."""

STEP_ROOM = 2.0
"""A single step may exceed the middle of the range by this many half-widths: batches differ more than probes."""

GRADIENT_ROOM = 4.0
"""A gradient norm may exceed the largest one before the onset by this factor."""

START_ROOM, START_PEAK_ROOM = 0.1, 0.5
"""Without a range, the loss at the end and at its peak may exceed the first loss by these shares of it."""

START_STEPS, END_SHARE = 3, 3
"""Without a range, the first loss is the median of so many steps, and the last one that of the last third."""


STRETCH_MAX, STRETCH_SHARE = 16, 0.25
"""More steps in a row than this are no block of bad batches. A step belongs to it if its loss keeps this share of the
rise at the onset; less is the damage that they did."""


@dataclass(frozen=True)
class Range:
    """The run's own range before the onset: the middle of its losses, how far the loss of the probes may ``rise``, and
    the highest loss of a step and gradient norm. ``gradient`` is infinite if unknown."""

    middle: float
    rise: float
    loss: float
    gradient: float


def range_before(case: Case) -> Range | None:
    """The range of the last steps before the onset, None if there are too few of them."""
    losses = _before(case, "loss")
    if case.onset <= EARLY_ONSET:
        losses = _until_rise(losses)
    if len(losses) < BEFORE_MIN:
        return None
    middle, noise = float(np.median(losses)), case.loss_noise()
    low, high = np.quantile(losses, [1 - UPPER_QUANTILE, UPPER_QUANTILE])
    rise = max(SPIKE_NOISES * noise, float(high - low))
    norms = _before(case, "gradient_norm")
    gradient = GRADIENT_ROOM * float(norms.max()) if len(norms) >= BEFORE_MIN and norms.max() > 0 else math.inf
    return Range(middle, rise, max(float(losses.max()), middle + STEP_ROOM * rise), gradient)


def _until_rise(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """The losses of a script's first steps up to the first far above its start: what rises from there is no health."""
    if not len(losses):
        return losses
    first = first_of(losses)
    high = np.flatnonzero(losses > first + START_PEAK_ROOM * abs(first))
    return losses[: high[0]] if len(high) else losses


def ailment(case: Case, outcome: Outcome, floor: float, *, own_scale: bool = False) -> str:
    """What is not healthy in an outcome over the steps from the onset on, in a few words; "" if nothing is.

    Args:
        floor: movement of the probe loss that is noise.
        own_scale: the trial changes what the loss or the gradient measures, so that only its own start compares.
    """
    if outcome.first_nonfinite is not None:
        return "a value is not finite"
    usual = None if own_scale else range_before(case)
    if usual is None:
        return _beside_start(outcome)
    seen = steps_from_onset(case, outcome)
    losses = [one.loss for one in seen if one.loss is not None]
    room = max(usual.loss, usual.middle + STEP_ROOM * floor)
    if losses and not max(losses) <= room:
        return f"the loss of a step is {max(losses):.3g}, before the onset it was at most {room:.3g}"
    excess = excess_in(case, outcome)
    allowed = max(floor, usual.rise)
    if excess is not None and not excess.final <= allowed:
        return f"the loss on fixed batches ends {excess.final:.3g} higher, the run's own range is {allowed:.3g}"
    norms = [one.gradient_norm for one in seen if one.gradient_norm is not None]
    if norms and not max(norms) <= usual.gradient:
        return f"the gradient norm is {max(norms):.3g}, before the onset it was at most {usual.gradient:.3g}"
    return ""


def ailment_at_end(case: Case, outcome: Outcome, floor: float, *, own_scale: bool = False) -> str:
    """As :func:`ailment` for a symptom of non-finite values: the step that was not finite may have a high loss of its
    own once it is finite, so the last probes decide, or the usual loss of the last steps."""
    usual = None if own_scale else range_before(case)
    if usual is None:
        few = _before(case, "loss")
        known = not own_scale and len(few) >= START_STEPS
        if known and _ends_within(case, outcome):
            return ""
        return _beside_start(outcome, _height_of(few) if known else -math.inf)
    excess = excess_in(case, outcome)
    allowed = max(floor if math.isfinite(floor) else 0.0, usual.rise)
    if excess is not None and math.isfinite(excess.first):  # a probe's own batch may have no loss at all
        risen = excess.final
        return (
            ""
            if risen <= allowed
            else f"but the loss on fixed batches ends {risen:.3g} higher, beyond the range of {allowed:.3g}"
        )
    losses = [one.loss for one in steps_from_onset(case, outcome) if one.loss is not None]
    last = last_of(losses) if losses else usual.middle
    return (
        ""
        if last <= usual.loss
        else f"but the loss ends at {last:.3g}, before the onset it was at most {usual.loss:.3g}"
    )


def first_ill_place(case: Case, outcome: Outcome) -> int | None:
    """The place of the first trained step from the onset on whose loss or finiteness leaves the range, None if all are
    within it or there is no range."""
    usual = range_before(case)
    for one in steps_from_onset(case, outcome):
        high = usual is not None and one.loss is not None and not one.loss <= usual.loss
        if high or not one.finite:
            return place_of(outcome, one.entry)
    return None


def harms_others(case: Case, controls: Sequence[Outcome], suspects: Container[int]) -> bool:
    """Whether anything beside the steps ``suspects`` is ill in the unchanged replay. If not, it is trivial that the
    symptom goes away without them. True where nobody can tell, or where the symptom is about values that are not
    finite: those are harm in themselves."""
    control = next((one for one in controls if one.ran and one.spec.trial == UNCHANGED), None)
    usual = range_before(case)
    if case.aim != "excess" or control is None or usual is None or control.first_nonfinite is not None:
        return True
    excess = excess_in(case, control)
    if excess is not None and excess.peak > noise_floor(case, excess, controls):
        return True
    schedule = control.spec.schedule
    others = [one for one in steps_from_onset(case, control) if schedule[one.entry].step not in suspects]
    if not others:
        return True
    return any(
        (one.loss is not None and not one.loss <= usual.loss)
        or (one.gradient_norm is not None and not one.gradient_norm <= usual.gradient)
        for one in others
    )


def steps_from_onset(case: Case, outcome: Outcome) -> list[StepSeen]:
    """The trained steps of an outcome from the onset on. Random numbers fed in place of a batch have no usual loss, so
    those steps are left out."""
    made_up = {
        int(step) for one in outcome.spec.changes if one.kind == "synthetic-batch" for step in one.values["steps"]
    }
    lead = max(steps_before_onset(case, outcome), 0)
    schedule = outcome.spec.schedule
    return [
        one for one in outcome.steps if place_of(outcome, one.entry) >= lead and schedule[one.entry].step not in made_up
    ]


def stretch(case: Case) -> int:
    """The number of steps from the onset on whose recorded loss stays high, with single steps between them: as many
    batches may be bad. At least 1, at most ``STRETCH_MAX``."""
    usual = range_before(case)
    series = case.window.series("loss")
    after = {int(step): loss for step, loss in zip(series.steps, series.values, strict=True) if step >= case.onset}
    if usual is None or case.onset not in after:
        return 1
    bound = max(usual.loss, usual.middle + STRETCH_SHARE * (after[case.onset] - usual.middle))
    last = case.onset
    while found := max((step for step in (last + 1, last + 2) if not after.get(step, bound) <= bound), default=None):
        last = found
    return min(STRETCH_MAX, last - case.onset + 1)


def _ends_within(case: Case, outcome: Outcome) -> bool:
    """Whether the loss ends within the few values that it had before the onset: at most their median, and not above
    the first ones, because a loss that rises from the start has no healthy median."""
    before = _before(case, "loss")
    losses = [one.loss for one in steps_from_onset(case, outcome) if one.loss is not None]
    if len(before) < START_STEPS or not losses:
        return False
    first = first_of(before)
    bound = min(float(np.median(before)), first + START_ROOM * abs(first))
    return last_of(losses) <= bound


def _height_of(few: NDArray[np.float64]) -> float:
    """How high the loss of a batch may be by the few before the onset; minus infinity if they rise, beyond noise."""
    first = first_of(few)
    rises = last_of(few) > first + START_PEAK_ROOM * abs(first)
    return -math.inf if rises else 2 * float(few.max()) - float(few.min())


def first_of(losses: Sequence[float] | NDArray[np.float64]) -> float:
    """The first loss without its noise."""
    return float(np.median(losses[:START_STEPS]))


def last_of(losses: Sequence[float] | NDArray[np.float64]) -> float:
    """The last loss without its noise."""
    return float(np.median(losses[-max(1, len(losses) // END_SHARE) :]))


def above_start(first: float, last: float, usual: float = -math.inf) -> str:
    """That a loss ends above its start and above the ``usual`` range, in words; "" if it does not."""
    allowed = max(first + START_ROOM * abs(first), usual)
    return "" if last <= allowed else f"its loss goes from {first:.3g} to {last:.3g}"


def _beside_start(outcome: Outcome, usual: float = -math.inf) -> str:
    """Whether the loss falls or stays near its start: of the probes if there are any, else of the steps, or below the
    ``usual`` height of the few before the onset."""
    means = probe_means(outcome)
    series = means if len(means) > 2 else [one.loss for one in outcome.steps if one.loss is not None]
    if len(series) < 2:
        return ""
    first, last = (series[0], series[-1]) if series is means else (first_of(series), last_of(series))
    if risen := above_start(first, last, usual):
        return risen
    peak = max(series)
    usual_peak = max(first + START_PEAK_ROOM * abs(first), usual)
    return "" if peak <= usual_peak else f"its loss starts at {first:.3g} and reaches {peak:.3g}"


def _before(case: Case, signal: str) -> NDArray[np.float64]:
    series = case.window.series(signal)
    return series.values[(series.steps < case.onset) & np.isfinite(series.values)][-BEFORE_MAX:]
