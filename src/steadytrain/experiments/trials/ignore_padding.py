"""Targets that are padding do not count."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class IgnorePadding(Trial):
    """Targets that are padding do not count.

    Changes:
        The label of the padding token is ignored in the cross-entropy.

    Tells:
        A model that learns padding.

    Beware:
        A padding token that also has a meaning.
    """

    axis = "loss"
    other_loss = True
    within_step = True

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        label = case.facts.get("pad_label", case.facts.get("pad_id"))
        if not isinstance(label, int):
            return NotApplicable("no padding token is known")
        return planned(self, case, Change("ignore-label", {"label": label}))
