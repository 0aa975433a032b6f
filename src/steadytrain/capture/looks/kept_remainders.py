"""Finds optimizers that keep what the format of the weights rounded away, and add it to a later update.

Kahan summation holds, for each weight, the part of its updates that was smaller than half the distance to the next
number of the format. So the sum of the updates reaches the weights, though single updates leave their bits as they are.
Its size tells such a state from a moment: no element exceeds that distance, many are a good part of it, and both signs
occur. A float32 weight that is split in two 16-bit halves has an integer state of its shape instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from steadytrain.capture.looks.held_parameters import is_sharded
from steadytrain.capture.step.optimizer_streams import Stream

AT_STEPS = (16, 64)
"""Updates after which the state is read: remainders have grown to their usual size."""

HALVES = (torch.float16, torch.bfloat16)
PARAMETERS_MAX, SAMPLED_MAX, ELEMENTS_MIN = 8, 4096, 64

WITHIN_SHARE, LARGE_SHARE, NEGATIVE_SHARE_MIN = 0.99, 0.5, 0.2
LARGE = 0.1
"""Nearly all elements lie within the distance, half of them above a tenth of it, and a fifth are negative."""


@torch.no_grad()
def remainder_rows(stream: Stream) -> Iterator[tuple[str, float]]:
    """``remainders-kept:CLASS`` is the share of the 16-bit weights read that have such a state. Reads the device once,
    and only where there are such weights."""
    wanted = half_weights(stream)
    kept = [_is_kept(stream, one) for one in wanted]
    known = [one for one in kept if one is not None]
    if known:
        share = torch.stack([one.to(known[0].device) for one in known]).float().sum() / len(wanted)
        if float(share):
            yield f"remainders-kept:{type(stream.optimizers[0]).__name__}", float(share)


def half_weights(stream: Stream) -> list[Tensor]:
    """The largest parameters in 16 bits of ``stream``, at most :data:`PARAMETERS_MAX`."""
    if is_sharded(stream.parameters):
        return []
    wanted = [one for one in stream.parameters if one.dtype in HALVES and one.numel() >= ELEMENTS_MIN]
    return sorted(wanted, key=lambda one: -one.numel())[:PARAMETERS_MAX]


def _is_kept(stream: Stream, weight: Tensor) -> Tensor | None:
    """Whether a state of ``weight`` holds remainders, as a 0-d tensor; None without a state of its shape."""
    held = [optimizer.state.get(weight) for optimizer in stream.optimizers]
    states = [value for one in held if isinstance(one, Mapping) for value in one.values() if isinstance(value, Tensor)]
    found = [_is_remainder(value, weight) for value in states if value.shape == weight.shape]
    return torch.stack([one.to(weight.device) for one in found]).any() if found else None


def _is_remainder(state: Tensor, weight: Tensor) -> Tensor:
    if not state.is_floating_point():
        return torch.tensor(state.element_size() == 2, device=state.device)
    every = -(-weight.numel() // SAMPLED_MAX) | 1
    values, weights = (one.detach().reshape(-1)[::every].float() for one in (state, weight))
    distance = torch.exp2(torch.floor(torch.log2(weights.abs()))) * torch.finfo(weight.dtype).eps
    of = values.abs()[weights != 0] / distance[weights != 0]
    return (
        (of <= 1).float().mean().ge(WITHIN_SHARE)
        & (of >= LARGE).float().mean().ge(LARGE_SHARE)
        & (values < 0).float().mean().ge(NEGATIVE_SHARE_MIN)
    )
