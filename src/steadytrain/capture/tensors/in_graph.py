"""Statistics of module outputs that a compiled graph computes by itself.

A hook that is on a module before the first trace becomes part of the graph: a few reductions, and a copy of their
results into a small tensor that the hook holds. No graph break, no Python call when the graph runs, nothing in the
module's state. torch.compile traces through this file, so it is kept apart from all that it must not see.

What such a hook adds is computed in every step, and the compiler may fuse the script's own operations differently
because of it; so the owner puts these hooks on only where that was asked for.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.hooks.module_hooks import VanishingHook
from steadytrain.core.torch_private import STATIC_ADDRESS

IN_SLOT = ("nonfinite", "mean", "std", "abs_max", "kurtosis", "zero_share", "dtype")
"""What a slot holds, in this order, as float32: of all elements; mean to kurtosis of the finite ones. ``dtype`` is one
more than a position in :data:`DTYPES_IN_GRAPH`, 0 if nothing was written."""

DTYPES_IN_GRAPH = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class SlotHook(VanishingHook):
    """A forward hook that does nothing but write its slot, and that only inside a compiled graph of a training call.

    An evaluation without gradients is a graph of its own, and in that nothing is written. Like all of our hooks it
    vanishes when its module is copied or pickled.
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
    """An empty slot. Its address never changes, which graphs that are replayed need to know."""
    slot = torch.zeros(len(IN_SLOT), dtype=torch.float32, device=device)
    STATIC_ADDRESS(slot)
    return slot


def write(slot: Tensor, output: Tensor) -> None:
    """Two passes over ``output``. Moments are taken of the distance to the mean, in units of the largest magnitude:
    float32 then holds their fourth power, and a mean far from zero does not drown the deviation."""
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
