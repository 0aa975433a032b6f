"""Weights drawn anew."""

from __future__ import annotations

from typing import final

from steadytrain.trials.case import Case
from steadytrain.trials.contract import Change, NotApplicable, Spec, Trial
from steadytrain.trials.planning import planned


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
