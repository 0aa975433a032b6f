"""Which symptoms of a rank follow from its loss, which is many times that of the other ranks."""

from __future__ import annotations

from collections.abc import Iterable

from steadytrain.core.model import Symptom
from steadytrain.grouping.stories import is_of_nonfinite

RANK_LOSS = "rank-loss"
MARGIN_STEPS = 8
"""A rise may be dated a few steps earlier: to the last step before it."""


def rank_loss(symptoms: Iterable[Symptom]) -> Symptom | None:
    """The finding that the loss of one rank is many times that of the others, None without one."""
    return next((symptom for symptom in symptoms if symptom.name == RANK_LOSS), None)


def follows(symptom: Symptom, *, since: float) -> bool:
    """Whether a symptom of that rank is about its loss and begins where the loss became so large, in step ``since``."""
    is_of_loss = "loss" in symptom.signals and not is_of_nonfinite(symptom)
    return is_of_loss and symptom.first_step >= since - MARGIN_STEPS
