"""Attention by plain operations."""

from __future__ import annotations

from typing import final

from steadytrain.trials.case import Case
from steadytrain.trials.contract import Change, NotApplicable, Spec, Trial
from steadytrain.trials.planning import planned


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
