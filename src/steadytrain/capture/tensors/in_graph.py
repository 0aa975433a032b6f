"""Statistics of module outputs that the compiled graph itself computes.

A hook added before the first trace becomes part of the graph: a few reductions, and a copy of their results into a
small tensor that the hook holds. There is no graph break, no Python call when the graph runs, and nothing in the
module's state. torch.compile traces through this file, so it is separate from code that the compiler must not see.

The graph computes these statistics in every step, and because of them the compiler may fuse the script's own operations
differently. So these hooks are added only on request.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.hooks.module_hooks import VanishingHook
from steadytrain.core.torch_private import STATIC_ADDRESS

IN_SLOT = ("nonfinite", "mean", "std", "abs_max", "kurtosis", "zero_share", "dtype")
"""The entries of a slot, in this order, as float32. They cover all elements; mean to kurtosis cover the finite ones.
``dtype`` is one more than the position in :data:`DTYPES_IN_GRAPH`, 0 for a slot that was not written."""

DTYPES_IN_GRAPH = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class SlotHook(VanishingHook):
    """A forward hook that writes its slot, and only inside a compiled graph of a training call.

    An evaluation without gradients has its own graph, which writes nothing. Like all our hooks, this one vanishes when
    its module is copied or pickled.
    """

    def __init__(self, slot: Tensor) -> None:
        self.slot = slot

    def __call__(self, module: Any, args: Any, output: Any) -> None:
        if not torch.compiler.is_dynamo_compiling() or not torch.is_grad_enabled():
            return
        if isinstance(output, dict):
            output = list(output.values())
        for entry in output if isinstance(output, (tuple, list)) else [output]:
            if isinstance(entry, Tensor) and entry.dtype in DTYPES_IN_GRAPH:
                if entry.device == self.slot.device:
                    write(self.slot, entry)
                return


def new_slot(device: torch.device) -> Tensor:
    """An empty slot. Its address never changes, as replayed graphs require."""
    slot = torch.zeros(len(IN_SLOT), dtype=torch.float32, device=device)
    STATIC_ADDRESS(slot)
    return slot


def write(slot: Tensor, output: Tensor) -> None:
    """Write the statistics of ``output`` in two passes. Moments use the distance to the mean, in units of the largest
    magnitude. So float32 can hold fourth powers, and a mean far from zero does not hide the deviation."""
    if output.numel() == 0:
        return
    with torch.no_grad():
        output = output.detach()
        finite = torch.isfinite(output)
        values = torch.where(finite, output, 0.0).to(torch.float32)
        count = finite.sum()
        largest = values.abs().amax()
        mean = values.sum() / count
        unit = torch.where(largest > 0, largest, 1.0)
        square = torch.where(finite, (values - mean) / unit, 0.0).square()
        variance = square.sum() / count
        kurtosis = square.square().sum() / count / variance.square()
        found = {
            "nonfinite": output.numel() - count,
            "mean": mean,
            "std": variance.sqrt() * unit,
            "abs_max": largest,
            "kurtosis": kurtosis,
            "zero_share": (output == 0).sum() / output.numel(),
            "dtype": torch.full_like(largest, 1.0 + DTYPES_IN_GRAPH.index(output.dtype)),
        }
        slot.copy_(torch.stack([found[name].to(torch.float32) for name in IN_SLOT]))
