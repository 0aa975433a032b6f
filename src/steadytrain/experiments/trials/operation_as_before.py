"""One operation of the script limited to what it made before the onset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class OperationAsBefore(Trial):
    """One operation of the script limited to what it made before the onset.

    Changes:
        The results of the division, exponential or power whose results jumped at the onset are limited to the largest
        absolute value that the same line made in earlier steps. All else stays.

    Tells:
        A divisor that comes close to 0, or an exponent that grows: the run stays well if this one line does not make
        larger numbers than before.

    Beware:
        A limited element passes no gradient on. Of operations before the model's call nothing is limited here: their
        results are the inputs of the model (`inputs-as-before`).
    """

    axis = "loss"
    either = "operation"

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        listed = case.facts.get("amplified")
        found = listed[0] if isinstance(listed, (list, tuple)) and listed else None
        if not isinstance(found, Mapping):
            return NotApplicable("no operation suddenly makes far larger numbers, or no survey ran")
        if found.get("before_model"):
            return NotApplicable("the operation prepares the inputs, which inputs-as-before limits")
        values = {"operation": found["operation"], "line": found["line"], "largest": float(found["before"])}
        return planned(self, case, Change("operation-as-before", values))
