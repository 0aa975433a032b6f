"""What custom autograd functions keep for their backward, and whether it changed before the backward ran.

A tensor that is given to ``save_for_backward`` is checked by torch. One that is kept as an attribute of the context is
not: if it is memory that a later application writes into, the backward of the earlier one reads the later one's values.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from steadytrain.core.torch_private import VERSION

KEPT_MAX = 4096
FOUND_MAX = 4


class CustomContexts:
    """Follows the tensors that contexts keep, from each application to the next backward."""

    def __init__(self) -> None:
        self._kept: list[tuple[str, str, Tensor, int]] = []
        self._found: dict[str, dict[str, Any]] = {}

    def applied(self, kind: Any, result: Any) -> None:
        """A custom function was applied, with this result."""
        outputs = result if isinstance(result, (tuple, list)) else (result,)
        node = next((one.grad_fn for one in outputs if isinstance(one, Tensor) and one.grad_fn is not None), None)
        for name, value in vars(node).items() if node is not None else ():
            if isinstance(value, Tensor) and len(self._kept) < KEPT_MAX:
                self._kept.append((kind.__name__, name, value, VERSION.of(value)))

    def backward_begins(self) -> None:
        """What changed since its application is overwritten. What a backward changes itself comes later."""
        kept, self._kept = self._kept, []
        for operation, name, value, version in kept:
            if VERSION.of(value) != version and (operation in self._found or len(self._found) < FOUND_MAX):
                one = self._found.setdefault(operation, {"operation": operation, "attribute": name, "applications": 0})
                one["applications"] += 1

    def step_begins(self) -> None:
        """Forgets what no backward came for."""
        self._kept.clear()

    def found(self) -> list[dict[str, Any]] | None:
        """``{operation, attribute, applications}``: what was kept there changed in so many applications."""
        return list(self._found.values()) or None
