"""Operations kept away from their singular points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import from_the_beginning, planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class SafeOperation(Trial):
    """Operations kept away from their singular points.

    Changes:
        log, sqrt, division, acos and their kin get operands at least 1e-6 away from where they are not finite; exp does
        not overflow, and 0 times Inf is 0. Matrices that are decomposed get distinct values, none zero. Where a data
        set or a collate function made the NaN, the script runs from its own beginning, and a sample that is not finite
        is made again in this way.

    Tells:
        An operation at its singular point: log(0), sqrt(0), a division by zero.

    Beware:
        Slower: it checks every call. A sum that is empty by mistake stays a mistake, and so does what NumPy computes.
    """

    removes = "transient operation"
    within_step = True

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        if _is_made_by_loader(case):
            return from_the_beginning(self, case, Change("safe-samples"))
        return planned(self, case, Change("safe-operation"))


def _is_made_by_loader(case: Case) -> bool:
    """Whether an operation of the script made the value before the loader gave the batch: replayed batches hold it."""
    steps = (case.onset, case.step)
    came_in = case.finding is not None and case.finding.located is None and case.finding.came_in
    made = case.facts.get("nonfinite_made")
    found = made if isinstance(made, list) else []
    before = any(isinstance(one, Mapping) and one.get("before_model") and one.get("step") in steps for one in found)
    return case.of_loader and bool(came_in) and before
