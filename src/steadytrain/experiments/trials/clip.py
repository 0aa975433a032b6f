"""Gradients clipped at a tenth of their usual norm."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Placebo, Spec
from steadytrain.experiments.trial import Trial

SHARE = 0.1
"""The largest norm as a share of the usual one."""


@final
class Clip(Trial):
    """Gradients clipped at a tenth of their usual norm.

    Changes:
        The global norm of all gradients is at most a tenth of the median before the onset.

    Tells:
        Little: it limits every instability that shows in the norm. A symptom that stays does not come from large
        gradients.

    Beware:
        Adam normalises the size again; with Adam the clipped step only counts less in the moments.
    """

    removes = "transient"
    either = "data rate moments state logits half shift operation script"
    alike = "smaller steps"

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        norm = case.typical("gradient_norm")
        if norm is None or norm <= 0:
            return NotApplicable("the gradient norm before the onset is not known")
        return planned(self, case, Change("clip-gradients", {"max_norm": SHARE * norm}))

    def placebo(self, case: Case) -> Placebo | NotApplicable | None:
        """Every gradient smaller by the same share: a lower rate, which does not limit the large ones more."""
        made = planned(self, case, Change("learning-rate", {"factor": SHARE}))
        if isinstance(made, NotApplicable):
            return None
        what = "a rate cut by as much as clipping cuts the usual gradient"
        return Placebo(what, tuple(replace(one, trial="learning-rate-tenth") for one in made))
