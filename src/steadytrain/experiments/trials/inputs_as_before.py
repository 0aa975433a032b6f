"""Inputs brought back to the scale, or into the range, that they had before the onset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import final

from steadytrain.experiments.case import LEAD_STEPS_MIN, Case
from steadytrain.experiments.judging import judge
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Outcome, Spec, Verdict
from steadytrain.experiments.trial import Trial

HOW = ("scale", "range")
"""The change of each repeat."""

FAR, FAR_SCALE = 3.0, 3.0
"""Standard deviations of single batches between those before and since, and the ratio of the largest values."""


@final
class InputsAsBefore(Trial):
    """Inputs brought back to the scale, or into the range, that they had before the onset.

    Changes:
        From the batch of the onset on, each feature of the floating-point inputs of the model is shifted and scaled to
        the mean and standard deviation of the last batch before. Another run limits each feature to the values that the
        steps before the onset had. Targets stay.

    Tells:
        Inputs in other units, without their normalization, or with codes for missing values (-9999): the same rows do
        no harm once they lie where earlier rows lay.

    Beware:
        Rows that differ in more than their scale are not mended by it. A limit hides what the values meant.
    """

    axis = "data"
    removes = "shift data"
    either = "operation half"

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        far = max(_number(case, "data_shift"), _number(case, "batch_distance"))
        if far < FAR and _number(case, "batch_scale") < FAR_SCALE:
            return NotApplicable("inputs from the onset on lie where those before lay, or no survey ran")
        begin = case.begin
        if case.aim == "progress" or begin is None or case.replayable is not None:
            return NotApplicable(case.replayable or "there is no recorded step before the onset")
        if case.onset - begin - 1 < LEAD_STEPS_MIN - 1:
            return NotApplicable("no step before the onset is replayed, so nothing is known of earlier inputs")
        specs: list[Spec] = []
        for repeat, how in enumerate(HOW):
            plan = planned(self, case, Change("inputs-as-before", {"step": case.onset, "how": how}))
            if isinstance(plan, NotApplicable):
                return plan
            specs += [replace(one, repeat=repeat) for one in plan]
        return tuple(specs)

    def judge(self, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
        """Judge by the run that mends, if one does."""
        found = [
            judge(self.name, case, controls, [one for one in outcomes if one.spec.repeat == repeat])
            for repeat in range(len(HOW))
            if any(one.spec.repeat == repeat for one in outcomes)
        ]
        best = next((one for one in found if one.effect == "removed"), None)
        if best is None:
            return found[0] if found else judge(self.name, case, controls, outcomes)
        how = ("at their earlier scale", "within their earlier range")[found.index(best)]
        return replace(best, why=f"with the inputs {how}: {best.why}")


def _number(case: Case, name: str) -> float:
    value = case.facts.get(name)
    return float(value) if isinstance(value, (int, float)) else 0.0
