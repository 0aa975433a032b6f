"""Self-attention that sees nothing after its own place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.skill_source import rests_on
from steadytrain.experiments.specs import Change, NotApplicable, Outcome, Spec, Verdict
from steadytrain.experiments.trial import Trial


@final
class CausalMask(Trial):
    """Self-attention that sees nothing after its own place.

    Changes:
        Attention by torch's functions gets a causal mask beside its own, in training steps and in probes.

    Tells:
        How much of what the model can do rests on looking ahead: where the same weights are near a guess without it,
        the loss was a leak's.

    Beware:
        A model that is meant to look both ways is made worse too; only where the labels are tokens that come later is
        it a fault. What a convolution or a norm over time lets through stays.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        ahead = case.facts.get("causal_gradient")
        if not isinstance(ahead, (int, float)):
            return NotApplicable("whether outputs depend on later inputs was not measured")
        if not ahead > 0:
            return NotApplicable("no output depends on a later input")
        if not case.facts.get("label_shift_trained"):
            return NotApplicable("the labels are no later tokens of the inputs, so looking ahead may be meant")
        return planned(self, case, Change("causal-mask"))

    def judge(self, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
        """By the probes of the same weights without the leak, not by whether they rise: they have to."""
        return rests_on(self.name, "what comes later", case, controls, outcomes)
