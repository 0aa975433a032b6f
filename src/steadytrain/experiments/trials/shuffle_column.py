"""The input column that reveals the label, shuffled over the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.skill_source import rests_on
from steadytrain.experiments.specs import Change, NotApplicable, Outcome, Placebo, Spec, Verdict
from steadytrain.experiments.trial import Trial


@final
class ShuffleColumn(Trial):
    """The input column that reveals the label, shuffled over the rows.

    Changes:
        The values of the input column that the survey named are shuffled over the rows of each batch, in training steps
        and in probes.

    Tells:
        How much the model depends on that column: if the same weights are near the loss of a guess without it, the
        label leaked.

    Beware:
        A column may legitimately predict the label. Only the first column found is shuffled.
    """

    axis = "data"

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        leaked = case.facts.get("labels_leaked")
        if not isinstance(leaked, list) or not leaked:
            return NotApplicable("no input column reveals the label, or no survey ran")
        return planned(self, case, Change("shuffle-column", {"column": int(leaked[0]["input"])}))

    def judge(self, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
        """Judge by the probes of the same weights without the column. A rise alone is expected."""
        return rests_on(self.name, "the column", case, controls, outcomes)

    def placebo(self, case: Case) -> Placebo | NotApplicable | None:
        """Another column shuffled: the first that reveals nothing."""
        leaked = case.facts.get("labels_leaked")
        known = {int(one["input"]) for one in leaked} if isinstance(leaked, list) else set()
        other = next(column for column in range(len(known) + 1) if column not in known)
        made = planned(self, case, Change("shuffle-column", {"column": other}))
        if isinstance(made, NotApplicable):
            return None
        return Placebo(f"shuffling column {other}", tuple(replace(one, trial=f"{self.name}-placebo") for one in made))
