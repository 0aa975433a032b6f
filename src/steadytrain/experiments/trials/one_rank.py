"""One process in place of several ranks: says why it is not run."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import of_several_ranks
from steadytrain.experiments.specs import NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class OneRank(Trial):
    """One process in place of several ranks.

    Changes:
        Nothing: it is never run. It stands here so that a diagnosis says what it lacks.

    Tells:
        Faults of what ranks do together would go.

    Beware:
        Try it by hand: the same script with one process, its batch as large as that of all ranks together.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return of_several_ranks(case, "there is one process already", WHY)


WHY = (
    "steps of several ranks are not on a tape, so none can be done again; run the script with one process and the "
    "batch of all ranks"
)
