"""Attention scores with a soft limit of 30."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class AttentionSoftcap(Trial):
    """Attention scores with a soft limit of 30.

    Changes:
        Scores s become 30 tanh(s / 30) before the softmax.

    Tells:
        Attention logits that grow until the softmax is one-hot.

    Beware:
        A model that needs sharp attention gets worse.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("attention-softcap", {"cap": 30.0}))
