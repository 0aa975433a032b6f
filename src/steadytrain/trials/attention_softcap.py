"""Attention scores with a soft limit of 30."""

from __future__ import annotations

from typing import final

from steadytrain.trials.case import Case
from steadytrain.trials.contract import Change, NotApplicable, Spec, Trial
from steadytrain.trials.planning import planned


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
