"""Statistics of module outputs that a compiled graph computes by itself.

A hook that is on a module before the first trace becomes part of the graph: a few reductions, and a copy of their
results into a small tensor that the hook holds. No graph break, no Python call when the graph runs, nothing in the
module's state. torch.compile traces through this file, so it is kept apart from all that it must not see.

What such a hook adds is computed in every step, and the compiler may fuse the script's own operations differently
because of it; so the owner puts these hooks on only where that was asked for.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor

IN_SLOT = ("mean", "mean_square", "abs_max", "dtype")
"""What a slot holds, in this order; ``dtype`` is one more than a position in :data:`DTYPES_IN_GRAPH`, 0 if nothing was
written."""

DTYPES_IN_GRAPH = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class SlotHook:
    """A forward hook that does nothing but write its slot, and that only inside a compiled graph.

    Like all of our hooks it vanishes when its module is copied or pickled.
    """

    def __init__(self, slot: Tensor) -> None:
        self.slot = slot

    def __call__(self, module: Any, args: Any, output: Any) -> None:
        if not torch.compiler.is_dynamo_compiling():
            return
        if isinstance(output, (tuple, list)) and len(output) > 0:
            output = output[0]
        if isinstance(output, Tensor) and output.dtype in DTYPES_IN_GRAPH and output.device == self.slot.device:
            write(self.slot, output)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return contextlib.nullcontext().__exit__


def new_slot(device: torch.device) -> Tensor:
    """An empty slot. Its address never changes, which graphs that are replayed need to know."""
    slot = torch.zeros(len(IN_SLOT), dtype=torch.float32, device=device)
    torch._dynamo.mark_static_address(slot)
    return slot


def write(slot: Tensor, output: Tensor) -> None:
    with torch.no_grad():
        values = output.detach().to(torch.float32)
        largest = values.abs().amax()
        code = torch.full_like(largest, 1.0 + DTYPES_IN_GRAPH.index(output.dtype))
        slot.copy_(torch.stack([values.mean(), values.square().mean(), largest, code]))
