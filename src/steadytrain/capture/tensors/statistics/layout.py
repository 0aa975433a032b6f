"""Chooses the samples of a set of parameters, and allocates the matrices that hold them between measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from steadytrain.capture.tensors.statistics.sample_chunks import CHUNK, Plan, plan_for

HELD_SHARE_MAX = 0.01
"""The share of the memory of parameters and optimizer state (taken as three times the parameters) for our samples."""

HELD_BYTES_MIN = 2 << 20
"""The memory that samples may use for a model of any size."""

_GROUP_ELEMENTS_MAX = 1 << 20
"""Samples processed at a time: bounds the temporary memory."""


@dataclass
class Group:
    """Parameters of one device and dtype whose samples have the same length.

    ``weights`` and ``gradients`` are ``(rows, length)``, with values from before the update. ``smallest_normal`` is the
    smallest normal number of each gradient's dtype, None without a gradient.
    """

    rows: list[int]
    weights: Tensor
    gradients: Tensor
    smallest_normal: list[float | None] = field(default_factory=list)


@dataclass(frozen=True)
class Layout:
    """``plans`` by row; ``groups`` hold every row that is not empty."""

    signature: tuple[object, ...] = ()
    plans: Mapping[int, Plan] = field(default_factory=dict)
    groups: tuple[Group, ...] = ()

    @property
    def held_bytes(self) -> int:
        return sum(matrix.nbytes for group in self.groups for matrix in (group.weights, group.gradients))


def signature_of(weights: Mapping[int, Tensor]) -> tuple[object, ...]:
    """The properties of the weights that determine a layout."""
    return tuple((row, w.shape, w.stride(), w.dtype, w.device) for row, w in weights.items())


def lay_out(weights: Mapping[int, Tensor], sample_max: int) -> Layout:
    """The layout of these weights, row -> dense values, with samples of at most ``sample_max`` elements."""
    size_max = _affordable(weights, sample_max)
    plans = {row: plan_for(values, size_max) for row, values in weights.items()}
    alike: dict[tuple[torch.device, torch.dtype, int], list[int]] = {}
    for row, values in weights.items():
        if plans[row].length:
            alike.setdefault((values.device, values.dtype, plans[row].length), []).append(row)
    groups = []
    for (device, dtype, length), rows in alike.items():
        computed = torch.float64 if dtype == torch.float64 else torch.float32
        many = max(1, _GROUP_ELEMENTS_MAX // length)
        for start in range(0, len(rows), many):
            chosen = rows[start : start + many]
            weights_held = torch.empty((len(chosen), length), dtype=dtype, device=device)
            gradients_held = torch.empty((len(chosen), length), dtype=computed, device=device)
            groups.append(Group(chosen, weights_held, gradients_held))
    return Layout(signature_of(weights), plans, tuple(groups))


def _affordable(weights: Mapping[int, Tensor], sample_max: int) -> int:
    """Elements per sample such that all samples together stay within their share of memory."""
    sizes = [(values.numel(), values.element_size()) for values in weights.values()]
    budget = max(HELD_BYTES_MIN, HELD_SHARE_MAX * 3 * sum(count * size for count, size in sizes))
    while sample_max > CHUNK and sum(min(count, sample_max) * (size + max(size, 4)) for count, size in sizes) > budget:
        sample_max = max(CHUNK, sample_max * 7 // 8)
    return sample_max
