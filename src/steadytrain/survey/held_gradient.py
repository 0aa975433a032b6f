"""What the script itself does to gradients between the last backward and the update, such as a division by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from steadytrain.core.torch_private import VERSION


@dataclass(frozen=True)
class _Seen:
    parameter: Tensor
    gradient: Tensor | None
    version: int
    clips: int


class HeldGradient:
    """Follows the first gradient that a backward finds.

    ``clips`` are the calls of torch's clipping so far. Each changes a gradient once, as a backward does that adds to
    it.
    """

    def __init__(self) -> None:
        self._seen: _Seen | None = None

    def backward_begins(self, parameters: Sequence[Tensor], clips: int) -> bool:
        """Whether there are gradients other than zero before this backward."""
        there = next((p for p in parameters if p.grad is not None and bool(p.grad.any())), None)
        gradient = there.grad if there is not None else None
        self._seen = _Seen(there, gradient, VERSION.on(gradient, 0), clips) if there is not None else None
        return there is not None

    @property
    def replaced(self) -> bool:
        """Whether the script put another tensor in its place."""
        return self._seen is not None and self._seen.parameter.grad is not self._seen.gradient

    def rescaled(self, clips: int) -> bool:
        """Whether the script changed it after the backward, as by a division by the number of rows."""
        seen = self._seen
        if seen is None:
            return False
        changes = VERSION.on(seen.gradient, 0) - seen.version - 1 - (clips - seen.clips)
        return self.replaced or changes > 0
