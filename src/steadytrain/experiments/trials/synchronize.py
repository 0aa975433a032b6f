"""Gradients averaged over ranks: says why it is not run."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import of_several_ranks
from steadytrain.experiments.specs import NotApplicable, Spec
from steadytrain.experiments.trial import Trial


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
        return of_several_ranks(case, "there is one process, which has nobody to average with", WHY)


WHY = (
    "steps of several ranks are not on a tape, so none can be done again; compare a digest of the parameters over ranks"
)
