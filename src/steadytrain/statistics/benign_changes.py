"""What explains a change of the loss without a fault: the schedule, the batches, the end of an epoch, pruning.

A detector asks for a span of steps; the answer is a sentence's end, or None. It turns a warning into a note and never
excuses what is critical. Not here: what happened after the change (``steadytrain.grouping``).
"""

from __future__ import annotations

import numpy as np

from steadytrain.core.model import IntArray, Window
from steadytrain.statistics.medians import median
from steadytrain.statistics.rolling_baseline import has_slid
from steadytrain.statistics.script_rows import script_rows

AROUND_STEPS = 64
RATE_RATIO = 1.5  # a restart or re-warm-up of the learning rate; science: onset within some steps of a rise by half
RATE_KNOWN_RATIO = 1.25  # a rate up to this much above the highest one before was seen before
RATE_RATIO_MAX = 10.0  # a rise by more, to a rate never seen in view, is no plan
BATCH_RATIO = 1.25
BATCH_ROWS_MIN = 16
VIEW_STEPS = 8192  # earlier steps are ignored: a log of a million steps may have a thousand spikes
EPOCH_AROUND_STEPS = 16
SETTING_SHARE = 0.3  # of the range that a number has had so far: what changes little by little explains no single rise
EPOCH_STEPS_MIN = 256  # in shorter epochs every step is near a boundary


def planned_change(window: Window, first_step: int, last_step: int) -> str | None:
    """What was changed where an episode began, None where nothing was."""
    whole, stride = window, _stride(window.steps)
    slid = has_slid(window.steps, stride=stride)
    begin, end = np.searchsorted(window.steps, [first_step - VIEW_STEPS * stride, last_step + 1])
    window = window.slice(int(begin), int(end))
    return (
        _restart(window, first_step, stride, slid=slid)
        or batches_changed(window, (first_step - AROUND_STEPS * stride, first_step - 1), (first_step, last_step))
        or _epoch(window, first_step, stride)
        or setting_changed(whole, first_step - AROUND_STEPS * stride, last_step)
        or ("the script prunes its weights" if script_rows(whole, "pruning-code") else None)
    )


def rate_restart(window: Window, first_step: int) -> str | None:
    """By how much the learning rate rose until this step to one that was there before, None where it did not."""
    stride = _stride(window.steps)
    window = window.slice(0, int(np.searchsorted(window.steps, first_step, side="right")))
    return _restart(window, first_step, stride, slid=has_slid(window.steps, stride=stride))


def _stride(steps: IntArray) -> int:
    """The stride, by no more than ``VIEW_STEPS`` gaps spread over the log: asked for every spike of a million steps."""
    at = np.arange(0, len(steps) - 1, len(steps) // VIEW_STEPS + 1)
    return max(1, int(median(steps[at + 1] - steps[at]))) if len(at) else 1


def _restart(window: Window, first_step: int, stride: int, *, slid: bool) -> str | None:
    rate = window.series("learning_rate").between(0, first_step + AROUND_STEPS * stride)
    begin = int(np.searchsorted(rate.steps, first_step - 2 * AROUND_STEPS * stride))
    now = rate.values[begin:]
    if len(now) < 2 or not np.isfinite(now).all():
        return None
    low = int(np.argmin(now))
    high = float(now[low:].max())
    if now[low] < 0 or high <= RATE_RATIO * now[low]:
        return None
    known = float(rate.values[:begin].max()) if begin else 0.0
    decayed = known > RATE_KNOWN_RATIO * now[low]  # a schedule was at work
    unknown = slid and (decayed or high <= RATE_RATIO_MAX * now[low])
    if high > RATE_KNOWN_RATIO * known and not unknown:
        return None
    return f"the learning rate rose from {now[low]:.3g} to {high:.3g}"


def batches_changed(window: Window, before: tuple[int, int], after: tuple[int, int]) -> str | None:
    """How the size of the batches differs between two spans of steps, None where it does not."""
    for signal in ("tokens", "samples"):
        series = window.applied(signal)
        earlier, later = series.between(*before).values, series.between(*after).values
        if len(earlier) < BATCH_ROWS_MIN or len(later) < 2:
            continue
        old, new = median(earlier), median(later)
        if old > 0 and new > 0 and max(old, new) > BATCH_RATIO * min(old, new):
            return f"batches went from {old:.0f} to {new:.0f} {signal}"
    return None


def _epoch(window: Window, first_step: int, stride: int) -> str | None:
    epoch = window.applied("epoch")
    ends = epoch.steps[1:][np.diff(np.floor(epoch.values)) > 0]
    if not len(ends) or (len(ends) > 1 and np.diff(ends).min() < EPOCH_STEPS_MIN):
        return None
    near = np.abs(ends - first_step) <= EPOCH_AROUND_STEPS * stride
    return f"an epoch ended at step {int(ends[near][0])}" if near.any() else None


def setting_changed(window: Window, first_step: int, last_step: int) -> str | None:
    """The number that the script passes to its model and that changed between two steps by a good part of its range.

    A count of steps is none: it changes in every look.
    """
    for row in script_rows(window, "setting"):
        known = row.values[row.steps <= last_step]
        now = row.values[(row.steps >= first_step) & (row.steps <= last_step)]
        counts = len(known) > 2 and bool((np.diff(known) > 0).all()) and not np.fmod(known, 1).any()
        if len(now) < 2 or counts or (moved := float(np.ptp(now))) == 0.0:
            continue
        if moved >= SETTING_SHARE * float(np.ptp(known)):
            return f"the script passes {row.place} = {now[-1]:.3g} to the model, after {now[0]:.3g}"
    return None


def has_moving_targets(window: Window) -> bool:
    """Whether the targets of the loss move with the model, as a value function's do (fact ``moving_targets``)."""
    return bool(window.facts.get("moving_targets", 0.0))
