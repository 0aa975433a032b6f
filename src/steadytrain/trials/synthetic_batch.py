"""Random numbers of the same shapes in the place of the suspect batches."""

from __future__ import annotations

from typing import final

from steadytrain.trials.case import Case
from steadytrain.trials.contract import Change, NotApplicable, Spec, Trial
from steadytrain.trials.planning import planned


@final
class SyntheticBatch(Trial):
    """Random numbers of the same shapes in the place of the suspect batches.

    Changes:
        What loaders and the model get in the suspect steps is drawn anew, within the range of what was there.

    Tells:
        Whether anything in the content of the batch matters.

    Beware:
        Where the script makes its targets itself these stay as they are; where none of it comes from a loader or
        through the model's arguments, only the inputs are others.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        if case.aim == "progress":
            return NotApplicable("no single batch is suspect where a run does not get better")
        if case.begin is None:
            return NotApplicable("no snapshot lies before the onset")
        return planned(self, case, Change("synthetic-batch", {"steps": list(case.suspects())}))
