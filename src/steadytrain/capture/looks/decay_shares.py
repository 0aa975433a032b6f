"""Reads how strongly weight decay acts, beside the weights and the gradient of the loss."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.tensors.statistics.norms import fetch, l2_norms

EVERY_STEPS, STEPS_MAX = 8, 512
"""How often it is read, and until which step: later the gradient is small because the loss is."""

RATE_MIN, PULL_MIN = 0.005, 0.5
"""Values below which nothing is written."""

L2_MIN = 1e-3
"""A smaller decay inside the gradient is not measured."""

ADDS_TO_GRADIENT = (
    *(torch.optim.Adam, torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax),
    *(torch.optim.RMSprop, torch.optim.Adagrad, torch.optim.Adadelta),
)
"""Optimizers that divide decay and gradient by the size of both, unless a group says that its decay is decoupled."""

TAKES_FROM_WEIGHTS = (torch.optim.AdamW, torch.optim.SGD)


class DecayShares:
    """Follows one stream. Costs the norms of the weights and gradients of one group where the decay is large."""

    def rows(self, stream: Stream) -> Iterator[tuple[str, float]]:
        """``decay-rate:CLASS`` is the share of each weight that an update removes. ``decay-pull:CLASS`` is the norm of
        the decay that is added to the gradient, over that of the gradient."""
        if stream.own_steps > STEPS_MAX or stream.own_steps % EVERY_STEPS:
            return
        for optimizer in stream.optimizers:
            group = max(optimizer.param_groups, key=_decayed_elements, default={})
            decay = _number(group, "weight_decay")
            if decay <= 0.0 or group.get("maximize"):
                continue
            name = type(optimizer).__name__
            if isinstance(optimizer, TAKES_FROM_WEIGHTS) or group.get("decoupled_weight_decay"):
                rate = _number(group, "lr") * decay / max(1.0 - _number(group, "momentum"), 1e-6)
                if rate >= RATE_MIN:
                    yield f"decay-rate:{name}", rate
            elif isinstance(optimizer, ADDS_TO_GRADIENT) and decay >= L2_MIN:
                pull = _pull(group, decay)
                if pull >= PULL_MIN:
                    yield f"decay-pull:{name}", pull


def _number(group: dict[str, Any], name: str) -> float:
    value = group.get(name, 0.0)
    return float(value) if isinstance(value, float | int) else 0.0


def _decayed_elements(group: dict[str, Any]) -> int:
    return sum(one.numel() for one in group["params"]) if _number(group, "weight_decay") > 0.0 else 0


def _pull(group: dict[str, Any], decay: float) -> float:
    """0 without gradients, or with gradients of zero."""
    with torch.no_grad():
        pairs = [(one.detach(), one.grad) for one in group["params"] if one.grad is not None and not one.grad.is_sparse]
        norms = fetch([*l2_norms([weight for weight, _ in pairs]), *l2_norms([gradient for _, gradient in pairs])])
    weights, gradients = (math.hypot(*part) for part in (norms[: len(pairs)], norms[len(pairs) :]))
    return decay * weights / gradients if gradients > 0.0 else 0.0
