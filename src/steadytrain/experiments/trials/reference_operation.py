"""The derivative that torch finds in place of a backward by hand."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class ReferenceOperation(Trial):
    """The derivative that torch finds in place of a backward by hand.

    Changes:
        The forward of every operation of the script's own (``torch.autograd.Function``) runs as ordinary code, and
        torch derives its backward. Its results are the same.

    Tells:
        A backward that is not the derivative of its forward.

    Beware:
        A forward that is wrong itself stays wrong. One that leaves torch (a kernel of its own, NumPy) has no derivative
        to find, and some backwards are another thing than the derivative on purpose (straight-through estimators).
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        names = case.facts.get("custom_operations")
        if not isinstance(names, list) or not names:
            return NotApplicable("no operation with a backward of its own is called, or nobody has looked")
        return planned(self, case, Change("reference-operation", {"operations": [str(name) for name in names]}))
