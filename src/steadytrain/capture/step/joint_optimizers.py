"""Decides which optimizers step together after one backward.

The first optimizer to step after a backward leads: the gate measures the gradients of all that step with it, and the
step counts once. A second optimizer is known to belong to it only when it steps without a new backward. That first
time, its gradients are checked separately.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from steadytrain.capture.step.optimizer_streams import StepInProgress
from steadytrain.capture.tensors.dense import dense_values
from steadytrain.capture.tensors.statistics import fetch, l2_norms


@torch.no_grad()
def may_join(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the optimizer's gradients are finite, or a gradient scaler will skip its step."""
    found_inf = getattr(optimizer, "found_inf", None)
    gradients = [
        values
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.grad is not None and (values := dense_values(parameter.grad)) is not None
    ]
    skipped = [found_inf] if isinstance(found_inf, Tensor) else []
    numbers = fetch([*skipped, *l2_norms(gradients)])
    return bool(skipped and numbers[0] > 0) or all(math.isfinite(norm) for norm in numbers[len(skipped) :])


def rest_of(seen: StepInProgress) -> StepInProgress:
    """A copy of ``seen``, whose first optimizer has already stepped, for an optimizer that steps after it."""
    return StepInProgress(
        began=seen.began,
        micro_batches=seen.micro_batches,
        used=seen.used,
        losses=seen.losses,
        evaluations=max(2, seen.evaluations),  # weights have moved within this step
    )
