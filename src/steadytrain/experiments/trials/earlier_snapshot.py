"""The recorded steps unchanged, from an earlier snapshot."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import NotApplicable, Spec
from steadytrain.experiments.trial import Trial

STEPS_MAX = 2000
"""Most steps to the onset."""


@final
class EarlierSnapshot(Trial):
    """The recorded steps unchanged, from an earlier snapshot.

    Changes:
        Only the start.

    Tells:
        Nothing alone; if every other trial fails, the state may have been bad before the snapshot.

    Beware:
        More steps until the onset.
    """

    removes = "transient"
    alike = "control"
    control = True

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        earlier = case.earlier_begin
        if earlier is None:
            return NotApplicable("there is no earlier snapshot")
        if (case.onset - earlier) > STEPS_MAX:
            return NotApplicable(f"the earlier snapshot is {case.onset - earlier} steps before the onset")
        return planned(self, case, begin=earlier)
