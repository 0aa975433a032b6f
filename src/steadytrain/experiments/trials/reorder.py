"""The recorded steps in another order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.judging import judge
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import NotApplicable, Outcome, Placebo, Spec, Verdict
from steadytrain.experiments.trial import Trial


@final
class Reorder(Trial):
    """The recorded steps in another order.

    Changes:
        The steps from the snapshot to the onset and as many after it are permuted; the same batches, each once.

    Tells:
        Order against content: if another order of the same batches removes the symptom, the data are correlated, or
        their order was bad luck.

    Beware:
        The suspect batch comes at another step. Random numbers stay with their batches.
    """

    axis = "data"
    removes = "transient"
    either = "data moments half operation"

    def judge(self, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
        """The suspect batch comes at another step, so the symptom counts wherever it comes from the first step on."""
        verdict = judge(self.name, replace(case, onset=(case.begin or 0) + 1), controls, outcomes)
        return replace(verdict, effect="persists") if verdict.effect == "worse" else verdict

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        begin = case.begin
        if begin is None or case.replayable is not None:
            return NotApplicable(case.replayable or "there is no snapshot before the onset")
        steps = case.recorded(begin)
        taped = [step for step in steps if step is not None]
        stride = max(2, round(len(taped) ** 0.5))
        mixed = [step for first in range(stride) for step in taped[first::stride]]
        return planned(self, case, steps=[*mixed, *steps[len(taped) :]])

    def placebo(self, case: Case) -> Placebo | NotApplicable | None:
        """Two batches change places. If that does as well, it is the batch, and not the order."""
        begin = case.begin
        if begin is None or case.replayable is not None:
            return None
        steps = case.recorded(begin)
        first, onset = 0, case.onset - begin - 1
        if not 0 < onset < len(steps) or steps[onset] is None:
            return None
        steps[first], steps[onset] = steps[onset], steps[first]
        made = planned(self, case, steps=steps)
        if isinstance(made, NotApplicable):
            return None
        what = f"letting the batches of steps {steps[onset]} and {steps[first]} change places"
        return Placebo(what, tuple(replace(one, trial=f"{self.name}-placebo") for one in made))
