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
        The targets of a cross-entropy over tokens are the tokens after those of the model's input, whatever the script
        gives. Probes are measured against the next token, both here and in a run of its own that trains as the script
        does: those two are compared.

    Tells:
        Labels that are shifted twice or not at all: the model learns to predict the next token only with this.

    Beware:
        A task whose labels are not the next tokens (a copy, a tag for each word) is not this model's fault.
    """

    fix = 1

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        real = case.facts.get("label_shift_trained")
        if real == 1:
            return NotApplicable("the labels are the next tokens already")
        if real is None and not case.facts.get("label_shift"):
            return NotApplicable("the labels are no tokens of the inputs, or nobody has looked")
        plans = [planned(self, case, Change("shift-labels", {"train": train})) for train in (False, True)]
        return both(plans)

    def judge(self, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
        """By the loss of the next token, in the run that trains on it against the one that does not."""
        return learns_it(self.name, "the next token", case, controls, outcomes)
