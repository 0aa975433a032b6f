"""Self-attention that sees nothing after its own place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.skill_source import rests_on
from steadytrain.experiments.specs import Change, NotApplicable, Outcome, Placebo, Spec, Verdict
from steadytrain.experiments.trial import Trial


@final
class CausalMask(Trial):
    """Self-attention that sees nothing after its own place.

    Changes:
        Attention by torch's functions gets a causal mask beside its own, in training steps and in probes.

    Tells:
        How much the model depends on later tokens: if the same weights are near the loss of a guess with the mask, the
        low loss came from a leak.

    Beware:
        It also makes bidirectional models worse; seeing later tokens is a fault only if the labels are later tokens.
        Leaks through a convolution or a norm over time stay.
    """

    axis = "model"

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        ahead = case.facts.get("causal_gradient")
        if not isinstance(ahead, (int, float)):
            return NotApplicable("whether outputs depend on later inputs was not measured")
        if not ahead > 0:
            return NotApplicable("no output depends on a later input")
        if not case.facts.get("label_shift_trained"):
            return NotApplicable("the labels are no later tokens of the inputs, so looking ahead may be meant")
        return planned(self, case, Change("causal-mask"))

    def placebo(self, case: Case) -> Placebo | NotApplicable | None:
        return NotApplicable("it compares the same weights with and without what comes later")

    def judge(self, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
        """Judge by the probes of the same weights without the leak. A rise alone is expected."""
        return rests_on(self.name, "what comes later", case, controls, outcomes)
