"""Why a symptom is harmless: by its course, or by how the training works.

A critical symptom is excused only by how the training works (:func:`is_by_design`) or by a column of the log. Each
excuse gives its reason.
"""

from __future__ import annotations

import math

from steadytrain.core.model import Symptom, Window
from steadytrain.grouping.catalog import declared
from steadytrain.grouping.courses import DATA, EPOCH, RECOVERED, RESTART, RESUME, SHIFTED, evaluated_since, told
from steadytrain.grouping.judged_values import judged_change
from steadytrain.grouping.larger_batches import of_larger_batches
from steadytrain.grouping.moving_targets import follows_targets
from steadytrain.statistics.log_levels import stage_changed
from steadytrain.statistics.medians import median
from steadytrain.statistics.rolling_baseline import stride_of
from steadytrain.statistics.script_rows import script_rows

MORE_CLASSES_MIN = 3
"""Looks that found more classes than the one before."""

CLASSES_NEAR_STEPS = 4
"""A rise begins this near to the step in which a likelihood has more classes."""

BACK_STEPS, BACK_SHARE = 16, 0.25
"""Losses whose medians are compared, and the share of a rise that may be left."""

STAYS_STEPS = 16
"""A batch, or a few in a row, raise the loss for fewer steps."""

BEGIN_STEPS, COMES_DOWN_STEPS = 16, 64
"""A symptom belongs to the beginning of a training this near to its first step, and is judged after so many."""

STAGE_STRIDES = 3
"""A stage column may change this many rows before the loss visibly rises."""


def is_by_design(window: Window, symptom: Symptom) -> str:
    """Why the training method explains a symptom, however severe it looks, or ""."""
    if window.facts.get("optimizers_in_turn", 1) > 1 and _rises_for_long(symptom):
        return "several optimizers take turns, and the loss of one rises where another learns"
    if declared(symptom.name).counts_rising_loss and _has_more_classes(window, symptom):
        return "the likelihood has more and more classes to choose from, as while a queue of negatives fills up"
    if declared(symptom.name).counts_rising_loss and (added := _classes_added(window, symptom)):
        return added
    if symptom.name == "plateau" and (more := script_rows(window, "more-classes")):
        return (
            f"the likelihood has more classes to choose from since step {int(more[0].steps[0])}: its loss began lower"
        )
    if larger := of_larger_batches(window, symptom):
        return larger
    kind = declared(symptom.name)
    if (kind.counts_rising_loss or kind.bursts) and (changed := judged_change(window, symptom)):
        return changed
    if (kind.counts_rising_loss or kind.bursts) and _begins_on_other_data(window, symptom):
        return "another training begins there: a new optimizer, on another data set"
    if kind.counts_rising_loss and script_rows(window, "reversed-gradient") and _is_back(window, symptom):
        return "an adversary raises the loss on purpose, by a reversed gradient, and it came back"
    if symptom.course == RESTART:
        return f"{told(symptom)}, and comes back down"
    return follows_targets(window, symptom)


def _begins_on_other_data(window: Window, symptom: Symptom) -> bool:
    """Whether a new optimizer took over at ``symptom``, on another data set: where it comes down, or has just begun."""
    begun = [int(step) for row in script_rows(window, "other-data") for step in row.steps]
    if not any(-BEGIN_STEPS <= symptom.first_step - step <= BEGIN_STEPS for step in begun):
        return False
    return window.steps[-1] - symptom.first_step < COMES_DOWN_STEPS or _is_back(window, symptom)


def _rises_for_long(symptom: Symptom) -> bool:
    """Whether a loss that rose is what the symptom is about, and no single batch: a spike that stays is a rise."""
    kind = declared(symptom.name)
    if kind.counts_rising_loss:
        return True
    begins_one = bool(kind.part_of) and declared(kind.part_of).counts_rising_loss
    stays = symptom.last_step - symptom.first_step >= STAYS_STEPS or symptom.course == SHIFTED
    return begins_one and stays and symptom.numbers.get("z", math.inf) <= kind.excused_z_max


def _is_back(window: Window, symptom: Symptom) -> bool:
    """Whether the newest losses have made up for most of the rise at ``symptom``."""
    loss = window.applied("loss")
    before = loss.values[loss.steps < symptom.first_step][-BACK_STEPS:]
    during = loss.values[loss.steps >= symptom.first_step]
    if len(before) < BACK_STEPS or len(during) < 2 * BACK_STEPS:
        return False
    level = median(before)
    return median(during[-BACK_STEPS:]) < level + BACK_SHARE * (float(during.max()) - level)


def _has_more_classes(window: Window, symptom: Symptom) -> bool:
    """Whether looks up to the symptom found more classes than the look before, and the last of them not long ago."""
    steps = [
        int(step) for row in script_rows(window, "more-classes") for step in row.steps if step <= symptom.last_step
    ]
    return len(steps) >= MORE_CLASSES_MIN and symptom.first_step <= 2 * max(steps)


def _classes_added(window: Window, symptom: Symptom) -> str:
    """Why a rise is that of a likelihood with more classes since then: a guess among ``n`` costs ``log(n)``. Or ""."""
    counts: dict[str, list[tuple[int, float]]] = {}
    for name in ("classes-before", "more-classes"):
        rows = script_rows(window, name)
        found = [pair for row in rows for pair in zip(row.steps.tolist(), row.values.tolist(), strict=True)]
        since = symptom.first_step - CLASSES_NEAR_STEPS
        counts[name] = sorted((step, value) for step, value in found if since <= step <= symptom.last_step)
    if not counts["more-classes"] or not counts["classes-before"]:
        return ""
    (step, before), (_, now) = counts["classes-before"][0], counts["more-classes"][-1]
    loss = window.applied("loss")
    earlier = loss.values[loss.steps < symptom.first_step][-BACK_STEPS:]
    later = loss.values[loss.steps >= symptom.first_step][-BACK_STEPS:]
    if step > symptom.first_step + CLASSES_NEAR_STEPS or not len(earlier) or not len(later):
        return ""
    may_rise = math.log(now / before)
    if median(later) - median(earlier) > may_rise:
        return ""
    return (
        f"the likelihood has {now:.0f} classes to choose from since step {step}, after {before:.0f}: a guess among "
        f"them costs {may_rise:.2g} nats more"
    )


def is_planned(window: Window, symptom: Symptom) -> str:
    """Why the way to train or the data plan had the loss rise there, or "": nothing was lost by accident."""
    if symptom.course == EPOCH:
        return f"{told(symptom)}, as the staircase of repeated data does"
    return is_by_design(window, symptom) or explained_by_columns(window, symptom)


def is_benign(window: Window, symptom: Symptom) -> str:
    """Why a symptom with this course is harmless, or ""."""
    course = symptom.course
    if reason := is_by_design(window, symptom):
        return reason
    if course == RESUME:
        return f"{told(symptom)}, and is gone again"
    if course == EPOCH:
        return f"{told(symptom)}, as the staircase of repeated data does"
    if course == DATA and evaluated_since(window, symptom) is False:
        return f"{told(symptom)}; evaluations did not move"
    if course == RECOVERED and _was_clipped(window, symptom):
        return f"its gradients were clipped, and {told(symptom)}"
    return ""


def explained_by_columns(window: Window, symptom: Symptom) -> str:
    """Why other columns of the log explain a rising loss of any size, or ""."""
    rises = declared(symptom.name).counts_rising_loss
    if window.facts.get("loss_may_rise") and (rises or symptom.name == "loss-spike"):
        return "the columns are those of a loss that measures no progress"
    if not rises:
        return ""
    stage = stage_changed(window, symptom.first_step - STAGE_STRIDES * stride_of(window.steps), symptom.last_step)
    return f"{stage} changed there" if stage else ""


def _was_clipped(window: Window, symptom: Symptom) -> bool:
    if symptom.numbers.get("z", 0.0) > declared(symptom.name).excused_z_max:
        return False
    clipped = window.series("clip_coefficient").between(symptom.first_step, symptom.last_step)
    return bool(len(clipped) and (clipped.values < 1).any())
