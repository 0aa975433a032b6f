"""Weights drawn anew."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class Reinitialize(Trial):
    """Weights drawn anew.

    Changes:
        Each module of torch draws its weights as it does by itself; moments are cleared.

    Tells:
        Weights that were never drawn, or so that nothing is learnt.

    Beware:
        Everything that was learnt is lost.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("reinitialize"))
