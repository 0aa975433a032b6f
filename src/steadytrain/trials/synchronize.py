"""Gradients averaged over ranks: says why it is not run."""

from __future__ import annotations

from typing import final

from steadytrain.trials.case import Case
from steadytrain.trials.contract import NotApplicable, Spec, Trial


@final
class Synchronize(Trial):
    """Gradients averaged over ranks before the update.

    Changes:
        Nothing: it is never run. It stands here so that a diagnosis says what it lacks.

    Tells:
        Ranks that train by themselves would train together.

    Beware:
        Look by hand: a digest of the parameters of each rank after one step, in the script itself.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        if case.facts.get("ranks", 1) == 1:
            return NotApplicable("there is one process, which has nobody to average with")
        return NotApplicable(WHY)


WHY = (
    "steps of several ranks are not on a tape, so none can be done again; compare a digest of the parameters over ranks"
)
