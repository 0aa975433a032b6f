"""Several optimizers after one backward: which of them step together.

The first one to step after a backward leads: the look at the gate covers the gradients of all that step with it, and
the step is counted once. That a second one belongs to it is only known once it steps without a backward of its own;
its gradients are looked at by themselves that first time.
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
    """Whether its gradients are fit to be applied, or a gradient scaler will see to it that they are not."""
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
    """What is known of a step whose first optimizer has stepped already, for one that steps after it."""
    return StepInProgress(
        began=seen.began,
        micro_batches=seen.micro_batches,
        used=seen.used,
        losses=seen.losses,
        evaluations=max(2, seen.evaluations),  # weights have moved within this step
    )
