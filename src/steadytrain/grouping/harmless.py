"""Why a symptom does no harm, by its course or by the way to train.

What is critical is never excused, and what is excused says why.
"""

from __future__ import annotations

from steadytrain.core.model import Symptom, Window
from steadytrain.grouping.catalog import declared
from steadytrain.grouping.courses import DATA, EPOCH, RECOVERED, RESTART, RESUME, evaluated_since, told


def is_benign(window: Window, symptom: Symptom) -> str:
    """Why a symptom with this course does no harm, or ""."""
    course = symptom.course
    if window.facts.get("optimizers_in_turn", 1) > 1 and declared(symptom.name).counts_rising_loss:
        return "several optimizers take turns, and the loss of one rises where another learns"
    if course == RESTART:
        return f"{told(symptom)}, and comes back down"
    if course == RESUME:
        return f"{told(symptom)}, and is gone again"
    if course == EPOCH:
        return f"{told(symptom)}, as the staircase of repeated data does"
    if course == DATA and evaluated_since(window, symptom) is False:
        return f"{told(symptom)}; evaluations did not move"
    if course == RECOVERED and _was_clipped(window, symptom):
        return f"its gradients were clipped, and {told(symptom)}"
    return ""


def _was_clipped(window: Window, symptom: Symptom) -> bool:
    if symptom.numbers.get("z", 0.0) > declared(symptom.name).excused_z_max:
        return False
    clipped = window.series("clip_coefficient").between(symptom.first_step, symptom.last_step)
    return bool(len(clipped) and (clipped.values < 1).any())
