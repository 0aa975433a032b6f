"""Finds batch norms in training mode whose running statistics are still those of a new module, or move too slowly."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.model_discovery import named_places, plain_name
from steadytrain.core.torch_private import BATCH_NORMS, BUFFERS, PARAMETERS

MOMENTUM_MAX = 0.05
"""From here on statistics have forgotten what they began with after some dozen batches."""

ROUNDING, CHANNELS_MIN = 1e-3, 8
"""Of few channels all may have a large variance by chance."""

NORMS_MAX = 32
"""Batch norms that are read in one look: the statistics of one model move together."""


@torch.no_grad()
def statistics_rows(roots: Iterable[nn.Module]) -> Iterator[tuple[str, float]]:
    """``new-statistics:NAME`` is the momentum of a batch norm in training mode whose mean is 0 and variance 1.

    Only batch norms count that track statistics and took part in the backward before; so do norms of the script itself
    with buffers of the same names. A momentum of None, which takes the mean of all batches, or that is not known, is
    -1. Reads the device once.
    """
    found = [
        (plain_name(path) or type(module).__name__, module)
        for root in roots
        for path, module in named_places(root)
        if (_should_learn(module) if isinstance(module, BATCH_NORMS.get()) else _is_of_script(module))
    ][:NORMS_MAX]
    if not found:
        return
    away = torch.stack([_distance(module) for _, module in found]).tolist()
    for (name, module), distance in zip(found, away, strict=True):
        if distance == 0.0:
            momentum = module.momentum if isinstance(module, BATCH_NORMS.get()) else None
            yield f"new-statistics:{name}", float(momentum) if momentum is not None else -1.0


@torch.no_grad()
def slow_norms(roots: Iterable[nn.Module]) -> dict[str, tuple[float, float]]:
    """The momentum of batch norms, and how many batches each has tracked, where all began in this run with the mean 0
    and the variance 1 of new modules, and are still these by half or more. Reads the device twice at most.

    After n batches a running variance is at least (1 - momentum)^n; one that was loaded is smaller somewhere.
    """
    norms = [
        (plain_name(path) or type(module).__name__, module)
        for root in roots
        for path, module in named_places(root)
        if isinstance(module, BATCH_NORMS.get()) and _should_learn(module) and 0 < (module.momentum or 0) < MOMENTUM_MAX
    ][:NORMS_MAX]
    counts = [module.num_batches_tracked for _, module in norms]
    if not norms or any(count is None for count in counts):
        return {}
    tracked = torch.stack([count.reshape(()) for count in counts]).tolist()
    shares = [(1.0 - module.momentum) ** count for (_, module), count in zip(norms, tracked, strict=True)]
    smallest = torch.stack([module.running_var.min() for _, module in norms]).tolist()
    channels = sum(module.num_features for _, module in norms)
    as_new = all(low >= share * (1.0 - ROUNDING) for low, share in zip(smallest, shares, strict=True))
    if min(shares) < 0.5 or max(shares) == 1.0 or channels < CHANNELS_MIN or not as_new:
        return {}
    return {name: (module.momentum, count) for (name, module), count in zip(norms, tracked, strict=True)}


def _should_learn(module: nn.Module) -> bool:
    weight, mean = getattr(module, "weight", None), getattr(module, "running_mean", None)
    if not module.training or not getattr(module, "track_running_stats", False) or not isinstance(mean, Tensor):
        return False
    return isinstance(weight, Tensor) and weight.grad is not None and mean.numel() > 0 and not mean.is_meta


def _is_of_script(module: nn.Module) -> bool:
    """Whether this is a norm that the script wrote, in training mode, whose own parameters have gradients."""
    buffers = dict(BUFFERS.of(module).items())  # a scripted module's table has no ``get``
    held = [buffers.get(name) for name in ("running_mean", "running_var")]
    same = [one for one in held if isinstance(one, Tensor) and one.is_floating_point() and not one.is_meta]
    if not module.training or len(same) != len(held) or same[0].shape != same[1].shape or not same[0].numel():
        return False
    return any(one is not None and one.grad is not None for one in PARAMETERS.of(module).values())


def _distance(module: nn.Module) -> Tensor:
    held = BUFFERS.of(module)
    away: Tensor = held["running_mean"].detach().abs().sum() + (held["running_var"].detach() - 1.0).abs().sum()
    return away.double()


def has_statistics(module: nn.Module) -> bool:
    """Whether this is a batch norm with running statistics that can be read."""
    if not isinstance(module, BATCH_NORMS.get()):
        return False  # before anything is asked of it: a module may count what it is asked for
    mean = dict(BUFFERS.of(module).items()).get("running_mean")
    return type(mean) is Tensor and not mean.is_meta and mean.numel() > 0


def statistics_of(norm: nn.Module) -> Tensor:
    """The running means and variances, [2, channels], as a copy."""
    held = BUFFERS.of(norm)
    return torch.stack([held["running_mean"].detach(), held["running_var"].detach()]).float()


def channels_apart(own: Tensor, there: Tensor, *, means: float, ratio: float) -> Tensor:
    """Which channels of ``own`` have a mean that is ``means`` standard deviations of ``there`` away, or a variance that
    is ``ratio`` times as large or as small; none where the shapes differ."""
    there = there.to(own.device)
    if own.shape != there.shape:
        return torch.zeros(1, dtype=torch.bool, device=own.device)
    away = (own[0] - there[0]).abs() > means * there[1].clamp(min=0.0).sqrt()
    factor = (own[1].clamp(min=1e-12) / there[1].clamp(min=1e-12)).log().abs()
    return away | (factor > math.log(ratio))
