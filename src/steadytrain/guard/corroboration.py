"""Whether a symptom means that the weights have left their course, by the history of the loss and of the gradients."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.core.model import Series, Symptom
from steadytrain.statistics.medians import median, row_medians

OF_LOSS = ("divergence", "loss-spike", "lost-progress")
OF_WEIGHTS = (
    *("learning-rate-jump", "exploding-gradients", "update-norm-spike", "second-moment-lag", "vanishing-weights"),
    *("representation-collapse", "attention-logit-growth"),
)
"""Symptoms that show what a harder task does not: an update or a weight is not as it was."""

GOES_ON_STEPS, USUAL_SHARE, RECENT_STEPS = 3, 0.95, 64
"""A loss goes on to be high above this share of so many steps before: what it was earlier in the run says little."""

NORM_RATIO, LEVEL_STEPS, LEVEL_STEPS_MIN = 8.0, 256, 8
ONSET_STEPS = 64
"""A symptom of the loss alone counts if a gradient norm at its onset was so many times the median before."""

OTHER_STEPS_MIN, LEVEL_OF = 8, 5
EARLIER_SHARE, AT_ONCE_SHARE, JUMP_SHARE, STAYS_RATIO, MOVED_RATIO = 0.5, 0.5, 0.5, 1.25, 4.0
"""The shares are of the height of the rise, but for the first one, which is of what counts as high, and that of a jump,
which is of the level before it. The norm of the weights changes by
at most so many times what it did."""

DIGESTED_MIN, AS_HIGH_SHARE, BACK_STEPS_MAX, BACK_RATIO = 3, 0.5, 64, 2.0
"""So many rises of at least this share of the height, each over within so many steps, are what the data do; the newest
may take so many times as long as the longest of them."""

NEARLY_SHARE, NEARLY_STEPS = 0.95, 16
"""A rise of which this share is gone is waited for, for so many steps after its last high one."""

NEAR_STEPS = 8
"""A symptom that was seen within so many steps before a value that is not finite belongs to it."""

DATA_SHARE = 0.5
DATA_CHANGED = (
    "the state from before the trouble has the same loss on the data that follow: the data changed, and from here on "
    "only values that are not finite are acted on"
)


def left_its_course(symptom: Symptom, stream: Stream, others: Iterable[Symptom]) -> bool:
    """Whether something else says so too: a loss alone also rises where the task becomes harder.

    That is the gradient norm, the learning rate, or one of ``others``, the symptoms of the run.
    """
    if symptom.name.startswith("nonfinite"):
        return True
    window = stream.history.window()
    norms = window.applied("gradient_norm")
    before = norms.values[norms.steps < symptom.first_step][-LEVEL_STEPS:]
    since = norms.between(symptom.first_step - NEAR_STEPS, symptom.first_step + ONSET_STEPS).values
    if len(before) < LEVEL_STEPS_MIN or not len(since):
        return True
    usual = median(before)
    if symptom.name not in OF_LOSS or (usual > 0 and since.max() > NORM_RATIO * usual):
        return usual > 0
    return any(
        other.name in OF_WEIGHTS
        and other.severity != "note"
        and other.stream == symptom.stream
        and abs(other.first_step - symptom.first_step) <= ONSET_STEPS
        for other in others
    )


def goes_on(symptom: Symptom, stream: Stream) -> bool:
    """Whether the loss still lies above its range from before: a single batch that is past needs no answer, nor do such
    as the run has digested before."""
    of_loss = symptom.name in OF_LOSS
    if not of_loss and symptom.name != "exploding-gradients":
        return True
    losses = stream.history.window().applied("loss")
    before = losses.values[losses.steps < symptom.first_step]
    since = losses.values[losses.steps >= symptom.first_step]
    if len(before) < GOES_ON_STEPS:
        return True
    if len(since) < GOES_ON_STEPS:
        return len(before) < LEVEL_STEPS_MIN or not of_loss
    usual = float(np.quantile(before[-RECENT_STEPS:], USUAL_SHARE if len(before) >= LEVEL_STEPS_MIN else 1.0))
    if of_loss and min(median(since[-GOES_ON_STEPS:]), float(since[-1])) <= usual:
        return False
    return not is_nearly_over(before, since) and not is_digested(before[-LEVEL_STEPS:], since)


def is_nearly_over(before: NDArray[np.float64], since: NDArray[np.float64]) -> bool:
    """Whether the run has come back most of the way from a rise, not long ago. A roll-back can still be made later.

    Both have shape ``(steps,)``, oldest first.
    """
    level, top = median(before[-RECENT_STEPS:]), float(since.max())
    high = np.flatnonzero(since >= level + AS_HIGH_SHARE * (top - level))
    gone, over = len(since) - 1 - int(high[-1]) if len(high) else math.inf, top - median(since[-GOES_ON_STEPS:])
    return gone < NEARLY_STEPS and over >= NEARLY_SHARE * (top - level)


def is_digested(before: NDArray[np.float64], since: NDArray[np.float64]) -> bool:
    """Whether the run has come back by itself from rises as high as this one, and this one is no longer than they were.

    Then the data have such batches, and are learned from. Both have shape ``(steps,)``, oldest first.
    """
    before, since = before[np.isfinite(before)], since[np.isfinite(since)]
    if not len(before) or not len(since):
        return False
    recent = before[-RECENT_STEPS:]
    level, usual = median(recent), float(np.quantile(recent, USUAL_SHARE))
    as_high = level + AS_HIGH_SHARE * (float(since.max()) - level)
    high = np.flatnonzero(before >= as_high)
    times = []
    for at in high[np.diff(high, prepend=-2) > 1].tolist():  # the first step of each rise
        back = np.flatnonzero(before[at + 1 : at + BACK_STEPS_MAX] <= usual)
        if not len(back):
            return False
        times.append(int(back[0]) + 1)
    latest = len(since) - int(np.flatnonzero(since >= as_high)[-1])
    return len(times) >= DIGESTED_MIN and latest <= BACK_RATIO * max(times)


def is_of_the_data(symptom: Symptom, stream: Stream) -> bool:
    """Whether the loss alone shows that other data are being learned, so that nothing has to be tried.

    Weights that went wrong take steps to do so, or were moved far. Here the loss is high from one step to the next, and
    neither rises nor jumps from then on, while the weights move as they did.
    """
    window = stream.history.window()
    losses, norms = window.applied("loss"), window.applied("parameter_norm")
    before = losses.values[losses.steps < symptom.first_step][-RECENT_STEPS:]
    since = losses.values[losses.steps >= symptom.first_step]
    is_rise = symptom.name in OF_LOSS or symptom.name == "exploding-gradients"
    if not is_rise or len(before) < LEVEL_STEPS_MIN or len(since) < OTHER_STEPS_MIN:
        return False
    return is_a_step(since - median(before)) and _moves_as_usual(norms, symptom.first_step)


def is_a_step(over: NDArray[np.float64]) -> bool:
    """Whether values from shortly before a rise on are high at once, and neither rise nor jump from then on."""
    high = AT_ONCE_SHARE * float(medians(over).max())
    first = int(np.argmax(over >= high))
    if first > NEAR_STEPS or (first and over[first - 1] >= EARLIER_SHARE * high) or len(over) - first < OTHER_STEPS_MIN:
        return False
    levels = medians(over[first:])
    at_once = median(over[first : first + GOES_ON_STEPS]) >= high
    return bool(
        at_once
        and (np.abs(np.diff(levels)) < JUMP_SHARE * np.maximum(levels[:-1], high / 2)).all()
        and median(levels[len(levels) // 2 :]) < STAYS_RATIO * levels[0]
    )


def medians(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Running medians of ``LEVEL_OF`` values: single batches are noise."""
    return row_medians(np.lib.stride_tricks.sliding_window_view(values, LEVEL_OF))


def _moves_as_usual(norms: Series, onset: int) -> bool:
    """Whether the norm of the weights has not changed much faster since ``onset`` than before."""
    moved = np.abs(np.diff(norms.values)) / np.maximum(1, np.diff(norms.steps))
    earlier = norms.steps[1:] < onset
    usual, now = moved[earlier][-RECENT_STEPS:], moved[~earlier]
    return len(usual) > 1 and len(now) > 0 and float(now.max()) < MOVED_RATIO * float(usual.max())


def first_step_of(symptom: Symptom, others: Iterable[Symptom]) -> int:
    """The first step of the trouble that ``symptom`` is part of: one of ``others`` may have begun shortly before."""
    near = [
        other.first_step
        for other in others
        if other.stream == symptom.stream
        and other.severity != "note"
        and other.name in (*OF_WEIGHTS, *OF_LOSS, "gradient-norm-spike")
        and 0 <= symptom.first_step - other.first_step <= 2 * NEAR_STEPS
    ]
    return min([symptom.first_step, *near])


def levels_at(stream: Stream, onset: int, refused: float | None = None) -> tuple[float, float] | None:
    """The level of the loss before the onset and since then; None if one of them is not known. ``refused``: the loss of
    the trouble, where the updates of all its steps were refused."""
    losses = stream.history.window().applied("loss")
    before, since = losses.values[losses.steps < onset][-LEVEL_STEPS:], losses.values[losses.steps >= onset]
    level = median(since) if len(since) else refused
    return (median(before), level) if len(before) and level is not None else None


def onset_of(stream: Stream, step: int, symptoms: Sequence[Symptom], *, since: float) -> tuple[int, bool]:
    """The first step of the trouble that ``step`` belongs to, and whether an applied update is part of it: then the
    weights have left their course already, and leaving out a batch does not help. Symptoms from before ``since`` do
    not count.
    """
    window = stream.history.window()
    refused = window.steps[window.refused].tolist()
    first = step
    while refused and refused[-1] == first - 1:
        first = refused.pop()
    open_since = [
        one.first_step
        for one in symptoms
        if one.stream == stream.name and one.last_step >= first - NEAR_STEPS and since < one.first_step < first
    ]
    return min([first, *open_since]), bool(open_since)


def data_changed(stream: Stream, levels: tuple[float, float], rolled_back_at: float) -> bool:
    """Whether the state that the run rolled back to has the loss of the trouble on the data that follow.

    ``levels`` are those of :func:`levels_at`.
    """
    losses = stream.history.window().applied("loss")
    now = losses.values[losses.steps > rolled_back_at]
    before, trouble = levels
    return len(now) > 0 and median(now) > before + DATA_SHARE * (trouble - before)
