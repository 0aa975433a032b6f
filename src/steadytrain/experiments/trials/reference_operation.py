"""The derivative by autograd in place of a hand-written backward."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class ReferenceOperation(Trial):
    """The derivative by autograd in place of a hand-written backward.

    Changes:
        The forward of every custom ``torch.autograd.Function`` runs as ordinary code, and autograd derives its
        backward. The forward results are the same.

    Tells:
        A backward that is not the derivative of its forward.

    Beware:
        A wrong forward stays wrong. One that leaves torch (a custom kernel, NumPy) has no derivative for autograd, and
        some backwards differ from the derivative on purpose (straight-through estimators).
    """

    axis = "model"
    within_step = True

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        names = case.facts.get("custom_operations")
        if not isinstance(names, list) or not names:
            return NotApplicable("no operation with a custom backward was called, or no survey ran")
        return planned(self, case, Change("reference-operation", {"operations": [str(name) for name in names]}))
