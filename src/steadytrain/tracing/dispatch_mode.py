"""A dispatch mode that sees every operation of torch on plain tensors; what it does with one is for its subclasses."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from steadytrain.core.torch_private import DISPATCH_MODE
from steadytrain.tracing.tensor_summary import has_own_dispatch


class EachOperation(DISPATCH_MODE.get()):  # type: ignore[misc]
    """Hands each operation to :meth:`operation`, which has to run it, as it is."""

    supports_higher_order_operators = True
    """Without this torch refuses flex_attention and its like under any mode."""

    def __init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        foreign = [kind for kind in types if has_own_dispatch(kind)]
        if any(hasattr(kind, "__tensor_flatten__") for kind in foreign):
            return NotImplemented  # a wrapper takes itself apart, and the plain operations inside come back here
        if foreign:
            return func(*args, **kwargs)  # fake tensors and the like: nothing to look at, nobody else to ask
        return self.operation(func, args, kwargs)

    @abstractmethod
    def operation(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """``func(*args, **kwargs)``, with a look at it."""
