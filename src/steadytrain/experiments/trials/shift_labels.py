"""Labels that are the next token of the input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.paired_runs import both, learns_it
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Outcome, Spec, Verdict
from steadytrain.experiments.trial import Trial


@final
class ShiftLabels(Trial):
    """Labels that are the next token of the input.

    Changes:
        The targets of a cross-entropy over tokens are the tokens after those of the model's input, whatever labels the
        script gives. It compares probes against the next token with those of a second run that trains as the script
        does.

    Tells:
        Labels that are shifted twice or not at all: only with this change does the model learn to predict the next
        token.

    Beware:
        Not for tasks whose labels are not the next tokens (a copy, a tag for each word).
    """

    axis = "data"
    fix = 1
    own_control = True

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        real = case.facts.get("label_shift_trained")
        if real == 1:
            return NotApplicable("the labels are the next tokens already")
        if real is None and not case.facts.get("label_shift"):
            return NotApplicable("the labels are no tokens of the inputs, or no survey ran")
        plans = [planned(self, case, Change("shift-labels", {"train": train})) for train in (False, True)]
        return both(plans)

    def judge(self, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
        """Judge by the next-token loss: the run that trains on it against the one that does not."""
        return learns_it(self.name, "the next token", case, controls, outcomes)
