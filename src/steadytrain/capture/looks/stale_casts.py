"""Says that autocast computes with copies of the weights from before their last update.

Autocast casts a weight once and keeps the copy until its outermost context ends. Within a step that saves time. In a
context that stays open over an update, the forward never sees what the optimizer changed: gradients are those of the
first weights, applied to others. Before an update, one layer is computed for one input with the copy and without it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn

from steadytrain.capture.looks.first_lines import first_line
from steadytrain.capture.looks.script_reading import source_files
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.core.torch_private import PARAMETERS

ELEMENTS_MAX = 1 << 22
CALLS: Mapping[type[nn.Module], Callable[..., Tensor]] = {
    nn.Linear: nn.functional.linear,
    nn.Conv1d: nn.functional.conv1d,
    nn.Conv2d: nn.functional.conv2d,
    nn.Conv3d: nn.functional.conv3d,
}
AUTOCAST = re.compile(r"\bautocast\s*\(")


class StaleCasts:
    """Compares one weight of a stream at a time, and reports it once."""

    def __init__(self) -> None:
        self._told = False

    def rows(self, stream: Stream) -> Iterator[tuple[str, float]]:
        """The line that opens the context, if the copy is not what the weight is. Called before an update."""
        if self._told or not torch.is_autocast_cache_enabled():
            return
        layer = next(_cast_layers(stream), None)
        if layer is not None and _is_stale(layer):
            self._told = True
            yield f"stale-casts:{first_line(AUTOCAST, source_files()) or 'autocast'}", 1.0


def _cast_layers(stream: Stream) -> Iterator[nn.Module]:
    """Those of which autocast casts the weight wherever it is on, and keeps the copy."""
    for root in stream.roots():
        first = next(root.parameters(), None)
        if first is None or not torch.is_autocast_enabled(first.device.type):
            continue
        for module in root.modules():
            weight = PARAMETERS.of(module).get("weight") if type(module) in CALLS else None
            if (
                type(weight) is nn.Parameter
                and weight.requires_grad
                and weight.dtype == torch.float32
                and weight.numel() <= ELEMENTS_MAX
                and torch.is_autocast_enabled(weight.device.type)
            ):
                yield module


def _is_stale(layer: nn.Module) -> bool:
    """Whether the copy that autocast keeps differs from a new one. Only a copy of a tensor with a gradient is kept."""
    weight = PARAMETERS.of(layer)["weight"]
    assert weight is not None
    call, groups = CALLS[type(layer)], getattr(layer, "groups", 1)
    options = {} if isinstance(layer, nn.Linear) else {"groups": groups}
    first = torch.zeros(1, weight.shape[1] * groups, *weight.shape[2:], device=weight.device)
    first.view(-1)[0] = 1.0
    with torch.enable_grad():
        kept = call(first, weight, **options)
        torch.set_autocast_cache_enabled(False)
        try:
            new = call(first, weight, **options)
        finally:
            torch.set_autocast_cache_enabled(True)
    return not torch.equal(kept, new)
