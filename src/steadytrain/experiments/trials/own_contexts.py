"""Contexts of custom operations with memory of their own."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import from_the_beginning
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class OwnContexts(Trial):
    """Each application of a custom operation keeps its own copy of what its backward reads.

    Changes:
        The tensors that the context of a custom ``torch.autograd.Function`` holds as attributes are copied when its
        forward is over. The script runs from its own beginning, because earlier gradients were wrong, too.

    Tells:
        A buffer that a later application of the same operation writes into before the backward of an earlier one.

    Beware:
        More memory. What the operation keeps outside of its context stays as it is.
    """

    axis = "model"

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        found = case.entries("overwritten_contexts")
        if not found:
            return NotApplicable("no custom operation overwrites what its context keeps, or no survey ran")
        names = [str(one["operation"]) for one in found]
        return from_the_beginning(self, case, Change("own-contexts", {"operations": names}))
