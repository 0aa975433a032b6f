"""Earlier batches in place of the suspect ones and all later ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import NotApplicable, Outcome, Spec, Verdict
from steadytrain.experiments.trial import Trial

OWN_DATA = "data that the script makes for its loss, without a loader, may have stayed as they were"

HEALTHY_MIN = 4
"""Minimum number of healthy steps to take fresh batches from."""


@final
class FreshData(Trial):
    """Earlier batches in place of the suspect ones and all later ones.

    Changes:
        From the update before the onset on, the loop gets recorded batches of earlier, healthy steps with their random
        numbers.

    Tells:
        Current data against the state: a symptom that goes away with other data, but not without the suspect batch
        alone, is a data shift.

    Beware:
        Batches that the model already saw give a lower loss; compare the probes, which are the same in all trials.
    """

    axis = "data"
    removes = "data transient shift"
    either = "moments half operation"
    within_step = True

    def judge(self, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
        """Data that the script makes itself, beside the inputs of the model (a mask, a weight), are those of its own
        step: without a loader, a symptom that stays says nothing about them."""
        judged = super().judge(case, controls, outcomes)
        if judged.effect in ("persists", "worse") and not case.of_loader:
            return Verdict(self.name, "inconclusive", judged.numbers, f"{judged.why}; {OWN_DATA}")
        return judged

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        healthy = [step for step in case.healthy_steps() if step not in case.suspects()]
        begin = case.begin
        if case.aim == "progress":
            return NotApplicable("without an onset there is no earlier data")
        if begin is None or case.replayable is not None:
            return NotApplicable(case.replayable or "there is no snapshot before the onset")
        if len(healthy) < HEALTHY_MIN:
            return NotApplicable(f"only {len(healthy)} steps on the tape are before the onset")
        first = case.suspects()[0]
        steps = case.recorded(begin)
        lead = first - begin - 1
        unused = [step for step in healthy if step <= begin] or healthy
        fresh = [unused[-1 - place % len(unused)] for place in range(len(steps) - lead)]
        return planned(self, case, steps=[*steps[:lead], *fresh])
