"""Integers that do not fit their type, in 64 bits."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import from_the_beginning, planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class WiderIntegers(Trial):
    """Integers that do not fit their type, in 64 bits.

    Changes:
        At the lines whose results wrapped around, each such result becomes a 64-bit integer with the exact value. What
        such a line writes in place keeps its type and stops at its limits. All else stays. If they wrapped before the
        snapshot already, or before the model is called, the script runs from its own beginning.

    Tells:
        Whether the wrapped numbers do the harm: a sum of 127 and 1 in int8 is -128.

    Beware:
        Integers that are made before the first step, as for a whole data set, stay as they are.
    """

    axis = "precision"

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        found = case.entries("wrapped_integers")
        if not found:
            return NotApplicable("no integer of the script leaves its type, or no survey ran")
        change = Change("wider-integers", {"lines": [str(one["line"]) for one in found]})
        anew = any(one.get("before_model") or int(one["step"]) <= (case.begin or 0) for one in found)
        return from_the_beginning(self, case, change) if anew else planned(self, case, change)
