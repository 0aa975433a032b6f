"""Finds buffers of a model that hold NaN, such as the running statistics of a batch norm after one bad batch.

In training mode a batch norm does not use them, so the loss stays finite; in evaluation mode every output is NaN. They
are left behind by a step that the script itself lets go because its loss is not finite.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.model_discovery import plain_name

BUFFERS_MAX, ELEMENTS_MAX, NAMED_MAX = 256, 65_536, 8


@torch.no_grad()
def nan_buffer_rows(roots: Iterable[nn.Module]) -> Iterator[tuple[str, float]]:
    """``nan-buffer:NAME`` is the number of NaN in a floating-point buffer. Infinite values may be meant: a mask holds
    them. Reads the device once, and again for each one that is found."""
    found: dict[str, Tensor] = {}
    for root in roots:
        for name, buffer in root.named_buffers():
            plain = type(buffer) is Tensor and buffer.layout is torch.strided  # a sharded one would ask the other ranks
            if plain and buffer.is_floating_point() and 0 < buffer.numel() <= ELEMENTS_MAX:
                found.setdefault(plain_name(name), buffer)
        if len(found) >= BUFFERS_MAX:
            break
    kept = list(found.items())[:BUFFERS_MAX]
    if not kept or any(one.device.type == "meta" for _, one in kept):
        return
    first = kept[0][1].device
    sums = torch.stack([one.float().abs().sum().to(first) for _, one in kept]).tolist()
    bad = [pair for pair, total in zip(kept, sums, strict=True) if total != total]
    for name, buffer in bad[:NAMED_MAX]:
        yield f"nan-buffer:{name}", float(buffer.isnan().sum())
