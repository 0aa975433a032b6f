"""Random numbers of the same shapes in place of the suspect batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import OWN_TARGETS, Change, NotApplicable, Outcome, Spec, Verdict
from steadytrain.experiments.trial import Trial


@final
class SyntheticBatch(Trial):
    """Random numbers of the same shapes in place of the suspect batches.

    Changes:
        Loader outputs and model inputs of the suspect steps are random numbers within the original range.

    Tells:
        Whether anything in the content of the batch matters.

    Beware:
        Targets that the script computes itself stay unchanged: then a symptom that persists proves nothing.
    """

    axis = "data"
    removes = "data transient shift"
    either = "rate moments state logits half operation script"
    within_step = True

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        if case.aim == "progress":
            return NotApplicable("a run without progress has no single suspect batch")
        if case.begin is None:
            return NotApplicable("there is no snapshot before the onset")
        return planned(self, case, Change("synthetic-batch", {"steps": list(case.suspects())}))

    def judge(self, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
        """If the targets stayed unchanged, a symptom that persists proves nothing."""
        judged = super().judge(case, controls, outcomes)
        if judged.effect in ("persists", "worse") and any(OWN_TARGETS in one.notes for one in outcomes):
            return Verdict(self.name, "inconclusive", judged.numbers, f"{judged.why}; {OWN_TARGETS}")
        return judged
