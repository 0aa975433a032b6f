"""One process in place of several ranks: says why it is not run."""

from __future__ import annotations

from typing import final

from steadytrain.trials.case import Case
from steadytrain.trials.contract import NotApplicable, Spec, Trial


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
        if case.facts.get("ranks", 1) == 1:
            return NotApplicable("there is one process already")
        return NotApplicable(WHY)


WHY = (
    "steps of several ranks are not on a tape, so none can be done again; run the script with one process and the "
    "batch of all ranks"
)
