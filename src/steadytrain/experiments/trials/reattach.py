"""Gradients pass where the graph was cut."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class Reattach(Trial):
    """Gradients pass where the graph was cut.

    Changes:
        ``detach`` and ``.data`` on the lines that the survey names return the tensor itself; modules that training
        steps call under ``no_grad`` run with gradients.

    Tells:
        An unintended cut: parameters before it learn nothing.

    Beware:
        Values that leave torch (NumPy, ``item``, ``torch.tensor``) cannot be reconnected. A cut may be intended: the
        target of a contrastive loss, a frozen encoder.
    """

    axis = "model"

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        cuts = [str(line) for line in case.facts.get("detached_calls") or ()]
        modules = [str(name) for name in case.facts.get("no_grad_calls") or ()]
        lost = [str(name) for name in case.facts.get("parameters_without_gradient") or ()]
        if not cuts and not modules:
            return NotApplicable("nothing cuts the graph, or no survey ran")
        if not lost:
            return NotApplicable("a gradient reaches every trainable parameter")
        gone = [cut for cut in cuts if any(word in cut for word in LEAVES_TORCH)]
        joined = [":".join(cut.split(":")[:2]) for cut in cuts if cut not in gone]
        if not joined and not modules:
            return NotApplicable(f"the value leaves torch, and no graph can be joined through that: {gone[0]}")
        return planned(
            self, case, Change("reattach", {"lines": joined, "modules": modules, "parameters": lost[:NAMES_MAX]})
        )


LEAVES_TORCH = (".numpy(", ".item(", ".tolist(", "torch.tensor(", "float(", "np.")
NAMES_MAX = 64
