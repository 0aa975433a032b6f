"""The input that holds the labels, from another row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.skill_source import rests_on
from steadytrain.experiments.specs import Change, NotApplicable, Outcome, Spec, Verdict
from steadytrain.experiments.trial import Trial


@final
class HideLabels(Trial):
    """The input of ids that are the labels, from another row.

    Changes:
        The model's input of ids that the survey found equal to the labels comes from the row before, in training steps
        and in probes. The loss keeps its labels.

    Tells:
        How much the model rests on that input: if the same weights are near the loss of a guess without it, the labels
        leaked.

    Beware:
        An encoder may read what its decoder is to write.
    """

    axis = "data"

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        place = case.facts.get("labels_read")
        if not isinstance(place, int):
            return NotApplicable("no input of ids is the labels, or no survey ran")
        return planned(self, case, Change("hide-labels", {"place": place}))

    def judge(self, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
        """Judge by the probes of the same weights without the input. A rise alone is expected."""
        return rests_on(self.name, "the labels among the inputs", case, controls, outcomes)
