"""Finds batch norms in training mode whose running statistics are still those of a new module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.model_discovery import named_places, plain_name
from steadytrain.core.torch_private import BATCH_NORMS

NORMS_MAX = 32
"""Batch norms that are read in one look: the statistics of one model move together."""


@torch.no_grad()
def statistics_rows(roots: Iterable[nn.Module]) -> Iterator[tuple[str, float]]:
    """``new-statistics:NAME`` is the momentum of a batch norm in training mode whose mean is 0 and variance 1.

    Only batch norms count that track statistics and took part in the backward before. A momentum of None, which takes
    the mean of all batches, is -1. Reads the device once.
    """
    found = [
        (plain_name(path) or type(module).__name__, module)
        for root in roots
        for path, module in named_places(root)
        if isinstance(module, BATCH_NORMS.get()) and _should_learn(module)
    ][:NORMS_MAX]
    if not found:
        return
    away = torch.stack([_distance(module.running_mean, module.running_var) for _, module in found]).tolist()
    for (name, module), distance in zip(found, away, strict=True):
        if distance == 0.0:
            yield f"new-statistics:{name}", float(module.momentum) if module.momentum is not None else -1.0


def _should_learn(module: nn.Module) -> bool:
    weight, mean = getattr(module, "weight", None), getattr(module, "running_mean", None)
    if not module.training or not getattr(module, "track_running_stats", False) or not isinstance(mean, Tensor):
        return False
    return isinstance(weight, Tensor) and weight.grad is not None and mean.numel() > 0 and not mean.is_meta


def _distance(mean: Tensor, variance: Tensor) -> Tensor:
    return (mean.detach().abs().sum() + (variance.detach() - 1.0).abs().sum()).double()
