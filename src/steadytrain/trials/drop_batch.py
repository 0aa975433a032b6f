"""The recorded steps without the suspect batches."""

from __future__ import annotations

from typing import final

from steadytrain.trials.case import Case
from steadytrain.trials.contract import NotApplicable, Spec, Trial
from steadytrain.trials.planning import planned


@final
class DropBatch(Trial):
    """The recorded steps without the suspect batches.

    Changes:
        The loop goes round with them, but their updates are refused and the state is put back: the batch of the onset,
        and that of the update before it, which is what the loss at the onset was computed after.

    Tells:
        A symptom that goes is in the data of these steps, or in what only they set off in a vulnerable state: see
        suspect-batch-earlier.

    Beware:
        Two updates fewer. A state that is broken already shows the symptom a step later.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        if case.aim == "progress":
            return NotApplicable("no single batch is suspect where a run does not get better")
        return planned(self, case, refused=case.suspects())
