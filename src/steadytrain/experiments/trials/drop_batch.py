"""The recorded steps without the suspect batch, and without its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.judging import judge
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import NotApplicable, Outcome, Spec, Verdict
from steadytrain.experiments.trial import Trial


@final
class DropBatch(Trial):
    """The recorded steps without the suspect batch.

    Changes:
        The loop runs the batch, but its update is skipped and the state restored. One run drops only the batch of the
        onset. Another also drops its neighbours: the update before, which the loss at the onset depends on, and the one
        that follows.

    Tells:
        If the symptom goes away, the data of these steps cause it, or trigger it in a vulnerable state: see
        suspect-batch-earlier. If only the second run removes it, the cause is the update before, or damage in several
        batches.

    Beware:
        One update fewer, or three. A state that is already broken shows the symptom a step later.
    """

    axis = "data"
    removes = "data transient"
    either = "moments operation"
    within_step = True

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        if case.aim == "progress":
            return NotApplicable("a run without progress has no single suspect batch")
        alone = planned(self, case, refused=(case.onset,))
        if isinstance(alone, NotApplicable):
            return alone
        begin = case.begin
        near = [step for step in (case.onset - 1, case.onset, case.onset + 1) if begin is None or step > begin]
        fed = {case.onset, *(entry.step for entry in alone[0].schedule if entry.role != "probe")}
        near = [step for step in near if step in fed]
        if case.onset - 1 not in near:
            return alone  # no update between the snapshot and the onset, so no neighbour can be the cause
        beside = planned(self, case, refused=near)
        assert not isinstance(beside, NotApplicable)
        return (*alone, *(replace(spec, repeat=1) for spec in beside))

    def judge(self, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
        """Judge by the batch alone, and by its neighbours if that is not enough."""
        alone = [one for one in outcomes if one.spec.repeat == 0]
        beside = [one for one in outcomes if one.spec.repeat == 1]
        verdict = judge(self.name, case, controls, alone or beside)
        if not alone or not beside or verdict.effect == "removed":
            return _told(verdict, "without the batch alone") if alone and verdict.effect == "removed" else verdict
        wider = judge(self.name, case, controls, beside)
        if wider.effect == "removed":
            return _told(wider, "only without its neighbours too")
        return verdict


def _told(verdict: Verdict, which: str) -> Verdict:
    return replace(verdict, why=f"{which}: {verdict.why}")
