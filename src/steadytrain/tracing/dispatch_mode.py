"""A dispatch mode that passes every torch operation on plain tensors to its subclass."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from steadytrain.core.torch_private import DISPATCH_MODE
from steadytrain.tracing.tensor_summary import has_own_dispatch


class EachOperation(DISPATCH_MODE.get()):  # type: ignore[misc]
    """Passes each operation to :meth:`operation`, which must run it."""

    supports_higher_order_operators = True
    """Otherwise torch refuses flex_attention and other higher-order operators under any mode."""

    def __init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        foreign = [kind for kind in types if has_own_dispatch(kind)]
        if any(hasattr(kind, "__tensor_flatten__") for kind in foreign):
            return NotImplemented  # a wrapper unwraps itself, and the plain operations inside come back here
        if foreign:
            return func(*args, **kwargs)  # fake tensors and similar types: nothing to inspect
        return self.operation(func, args, kwargs)

    @abstractmethod
    def operation(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Runs and returns ``func(*args, **kwargs)``."""
