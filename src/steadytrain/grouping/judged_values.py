"""Whether the loss judges more or fewer values for each sample than before, as with a horizon that grows by a plan."""

from __future__ import annotations

from steadytrain.core.model import Symptom, Window
from steadytrain.statistics.benign_changes import batches_changed
from steadytrain.statistics.script_rows import ScriptRow, script_rows

BEFORE_STEPS = 64
"""A symptom may begin so long after the change: a drift is told from the level before."""

RATIO = 1.25
ALIKE = 2
"""Looks with equal numbers before the change: sequences of any length differ from look to look."""


def judged_change(window: Window, symptom: Symptom) -> str:
    """What changed shortly before or during ``symptom``, in words; "" if nothing did. Larger batches explain a short
    rise alone: a training that longer texts make diverge is no plan."""
    first, last = symptom.first_step, symptom.last_step
    if last - first <= BEFORE_STEPS and (
        told := batches_changed(window, (first - BEFORE_STEPS, first - 1), (first, last))
    ):
        return told
    for row in script_rows(window, "judged"):
        if told := _changed(row, symptom.first_step - BEFORE_STEPS, symptom.last_step):
            return told
    return ""


def _changed(row: ScriptRow, first_step: int, last_step: int) -> str:
    values, steps = row.values, row.steps
    for at in range(ALIKE, len(values)):
        old, new = float(values[at - 1]), float(values[at])
        steady = (values[at - ALIKE : at] == old).all() and (values[at : at + ALIKE] == new).all()
        differs = min(old, new) > 0.0 and max(old, new) > RATIO * min(old, new)
        if steady and differs and steps[at] >= first_step and steps[at - 1] <= last_step:
            return f"the loss judges {new:.4g} values a sample from step {steps[at]} on, {old:.4g} before"
    return ""
