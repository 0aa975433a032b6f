"""The input column that tells the label, dealt out to other rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.skill_source import rests_on
from steadytrain.experiments.specs import Change, NotApplicable, Outcome, Spec, Verdict
from steadytrain.experiments.trial import Trial


@final
class ShuffleColumn(Trial):
    """The input column that tells the label, dealt out to other rows.

    Changes:
        The values of the column that the survey found to tell the label are shuffled over the rows of each batch, in
        training steps and in probes.

    Tells:
        How much of what the model can do rests on that column: where the same weights are near a guess without it, the
        label leaked.

    Beware:
        A column may tell much and be allowed to. One column is shuffled, the first that was found.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        leaked = case.facts.get("labels_leaked")
        if not isinstance(leaked, list) or not leaked:
            return NotApplicable("no input column was found to tell the label, or nobody has looked")
        return planned(self, case, Change("shuffle-column", {"column": int(leaked[0]["input"])}))

    def judge(self, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
        """By the probes of the same weights without the column, not by whether they rise: they have to."""
        return rests_on(self.name, "the column", case, controls, outcomes)
