"""The suspect batches first, in the healthy state of the snapshot."""

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
class SuspectBatchEarlier(Trial):
    """The suspect batches first, in the healthy state of the snapshot.

    Changes:
        They come right after the snapshot, some steps early; the other steps follow in order.

    Tells:
        With drop-batch, the 2 x 2 of state and batch: if the symptom comes at once, the batch alone causes it; if not,
        the later state contributed.

    Beware:
        The script's own counters have the values of the first steps after the snapshot.
    """

    removes = "logits transient ranks"
    either = "rate moments state half kernel operation script"

    def judge(self, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
        """The symptom may come from the first step on. If it comes sooner than in the control, that is not worse."""
        verdict = judge(self.name, replace(case, onset=(case.begin or 0) + 1), controls, outcomes)
        return replace(verdict, effect="persists") if verdict.effect == "worse" else verdict

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        begin = case.begin
        if case.aim == "progress":
            return NotApplicable("a run without progress has no single suspect batch")
        if begin is None or case.replayable is not None:
            return NotApplicable(case.replayable or "there is no snapshot before the onset")
        suspects = case.suspects()
        if suspects[0] <= begin + 1:
            return NotApplicable("the suspect batch is the first after the snapshot already")
        others = [step for step in case.recorded(begin) if step not in suspects]
        return planned(self, case, steps=[*suspects, *others])
