"""Weights that should be tied share their values again."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class Retie(Trial):
    """Weights that should be tied share their values again.

    Changes:
        Pairs that the survey found untied share one tensor.

    Tells:
        An embedding and a head that are no longer tied.

    Beware:
        None.
    """

    axis = "model"

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        pairs = case.facts.get("tied_broken")
        if not isinstance(pairs, list) or not pairs:
            return NotApplicable("no broken tie is known")
        return planned(self, case, Change("retie", {"pairs": [name for pair in pairs for name in pair]}))
