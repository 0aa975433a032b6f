"""The gradients of a step as plain tensors, and which of them the clip of the step has left as they are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from torch import Tensor

from steadytrain.capture.hooks.clipping import Clipping
from steadytrain.capture.tensors.gradient_scaling import overflow_share
from steadytrain.capture.tensors.statistics import dense_values
from steadytrain.core.torch_private import VERSION


def gradients_of(parameters: Sequence[Tensor]) -> list[tuple[int, Tensor]]:
    """Position and plain values of each gradient; none for the empty shard of a parameter."""
    found = []
    for position, parameter in enumerate(parameters):
        gradient = parameter.grad
        values = dense_values(gradient) if gradient is not None else None
        if values is not None and (values.numel() or not parameter.numel()):  # not the empty shard of a parameter
            found.append((position, values))
    return found


def changed_since(
    left: Mapping[int, tuple[int, int]], parameters: Sequence[Tensor], gradients: list[tuple[int, Tensor]]
) -> list[tuple[int, Tensor]]:
    """The ``gradients`` that are not as the clip left them."""
    if not left:
        return gradients
    changed = []
    for at, values in gradients:
        parameter = parameters[at]
        gradient = parameter.grad
        if gradient is None or left.get(id(parameter)) != (id(gradient), VERSION.of(gradient)):
            changed.append((at, values))
    return changed


def dense_of(parameters: Sequence[Tensor]) -> list[Tensor]:
    """The plain values of the parameters that have such."""
    return [values for parameter in parameters if (values := dense_values(parameter)) is not None]


def overflowed(
    parameters: Sequence[Tensor],
    clipping: Clipping,
    gradients: Sequence[tuple[int, Tensor]],
    applied: Mapping[int, float],
) -> float | None:
    """The share of gradient elements that were NaN or Inf before clipping could spread them."""
    if gradients and not clipping.states and all(map(math.isfinite, applied.values())):
        return 0.0
    unclipped = [(at, values) for at, values in gradients if id(parameters[at]) not in clipping.norms]
    bad = sum(state.nan + state.inf for state in clipping.states.values())
    count = sum(values.numel() for _, values in gradients)
    own = overflow_share(applied, unclipped)
    own_count = sum(values.numel() for _, values in unclipped)
    return (bad + (own or 0.0) * own_count) / count if count else None
