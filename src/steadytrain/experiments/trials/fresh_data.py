"""Batches of before the onset in the place of those from the suspect ones on."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import NotApplicable, Spec
from steadytrain.experiments.trial import Trial

HEALTHY_MIN = 4
"""Healthy steps that fresh batches are taken from, at least."""


@final
class FreshData(Trial):
    """Batches of before the onset in the place of those from the suspect ones on.

    Changes:
        From the update before the onset on, recorded batches of earlier, healthy steps are fed, with their own random
        numbers.

    Tells:
        Data of now against the state: what goes with other data and not with the suspect batch left out is a shift of
        the data.

    Beware:
        Batches that were trained on before give a lower loss; judged on the probes, which are the same in all trials.
    """

    removes = "data transient shift"
    either = "moments half operation"

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        healthy = [step for step in case.healthy_steps() if step not in case.suspects()]
        begin = case.begin
        if case.aim == "progress":
            return NotApplicable("there is no onset after which data could be others")
        if begin is None or case.replayable is not None:
            return NotApplicable(case.replayable or "no snapshot lies before the onset")
        if len(healthy) < HEALTHY_MIN:
            return NotApplicable(f"only {len(healthy)} steps on the tape lie before the onset")
        first = case.suspects()[0]
        steps = case.recorded(begin)
        lead = first - begin - 1
        unused = [step for step in healthy if step <= begin] or healthy
        fresh = [unused[-1 - place % len(unused)] for place in range(len(steps) - lead)]
        return planned(self, case, steps=[*steps[:lead], *fresh])
