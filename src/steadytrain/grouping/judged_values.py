"""Whether the loss judges more or fewer values for each sample than before, as with a horizon that grows by a plan."""

from __future__ import annotations

from steadytrain.core.model import Symptom, Window
from steadytrain.statistics.benign_changes import batches_changed
from steadytrain.statistics.run_away import grew, ran_away
from steadytrain.statistics.script_rows import ScriptRow, script_rows

BEFORE_STEPS = 64
"""A symptom may begin so long after the change: a drift is told from the level before."""

RATIO = 1.25
ALIKE = 2
"""Looks with equal numbers before the change: sequences of any length differ from look to look."""


LATE_STEPS = 16
"""And a look may see the change so long after the rise began."""

RATE_RATIO = 4.0
"""A learning rate this far above all rates before is a better reason."""


def judged_change(window: Window, symptom: Symptom) -> str:
    """What changed shortly before ``symptom``, in words; "" if nothing did, or if the run went out of hand: a rate that
    nobody saw before, a loss a thousand times all before it. Larger batches explain a short rise alone: a training that
    longer texts make diverge is no plan."""
    first, last = symptom.first_step, symptom.last_step
    told = ""
    if last - first <= BEFORE_STEPS:
        told = batches_changed(window, (first - BEFORE_STEPS, first - 1), (first, last)) or ""
    changes = (_changed(row, first - BEFORE_STEPS, first + LATE_STEPS) for row in script_rows(window, "judged"))
    told = told or next(filter(None, changes), "")
    return "" if told and (ran_away(window, first, last) or _rate_is_new(window, first, last)) else told


def _rate_is_new(window: Window, first_step: int, last_step: int) -> bool:
    rate = window.applied("learning_rate")
    return grew(rate, max(1, first_step - BEFORE_STEPS), last_step, RATE_RATIO, high=1.0)


def _changed(row: ScriptRow, first_step: int, last_step: int) -> str:
    values, steps = row.values, row.steps
    for at in range(ALIKE, len(values)):
        old, new = float(values[at - 1]), float(values[at])
        steady = (values[at - ALIKE : at] == old).all() and (values[at : at + ALIKE] == new).all()
        differs = min(old, new) > 0.0 and max(old, new) > RATIO * min(old, new)
        if steady and differs and first_step <= steps[at] <= last_step:
            return f"the loss judges {new:.4g} values a sample from step {steps[at]} on, {old:.4g} before"
    return ""
