"""Attention by plain operations."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class MathAttention(Trial):
    """Attention by plain operations.

    Changes:
        scaled_dot_product_attention by matrix products and a softmax.

    Tells:
        A fused kernel that fails or is not repeatable.

    Beware:
        Other rounding in attention; more memory.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("math-attention"))
