"""Replaces functions of torch during a trial: a loss, an attention, a softmax.

torch passes every call to its function mode, however the script imported the function, so nothing in the script is
patched. Two functions are also called inside torch, and are replaced by name as well. Without a replacement no mode is
entered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

StandIn = Callable[..., Any]
"""Gets the original function, then the arguments of the call."""

_INNER = {
    "scaled_dot_product_attention": functional.scaled_dot_product_attention,
    "softmax": functional.softmax,
}
"""Functions that ``torch.nn.functional`` itself calls by these names (``multi_head_attention_forward``)."""

MASKED = -1e4
"""Attention scores up to this value are masks: common masks add -1e4, -1e9, the smallest float or -inf."""

SOFTMAX = (functional.softmax, torch.softmax, torch.Tensor.softmax)
ATTENTION = (functional.scaled_dot_product_attention,)
DISTANCES = (functional.mse_loss, functional.l1_loss, functional.smooth_l1_loss, functional.huber_loss)
"""Losses that compare values with values."""

LOSSES = tuple(
    getattr(functional, name)
    for name in (
        "cross_entropy",
        "nll_loss",
        "mse_loss",
        "l1_loss",
        "smooth_l1_loss",
        "huber_loss",
        "binary_cross_entropy",
        "binary_cross_entropy_with_logits",
        "kl_div",
        "gaussian_nll_loss",
        "poisson_nll_loss",
        "cosine_embedding_loss",
        "margin_ranking_loss",
        "triplet_margin_loss",
        "hinge_embedding_loss",
        "soft_margin_loss",
        "multi_margin_loss",
        "ctc_loss",
    )
)


class Functions(TorchFunctionMode):
    """The replaced functions. :meth:`replace` enters the mode, which stays until :meth:`end` or the end of the
    process."""

    def __init__(self) -> None:
        super().__init__()
        self._table: dict[Any, StandIn] = {}
        self._inner: dict[str, Any] = {}
        self._entered = False
        self._inside = False
        self.replaced = 0
        """How often :meth:`replace` was called."""

        self.aside = False
        """Whether the originals are called for now: an optimizer updates, with the same functions as a model."""

    def replace(self, functions: Iterable[Callable[..., Any]], stand_in: StandIn) -> None:
        self.replaced += 1
        for function in functions:
            before = self._table.get(function)
            self._table[function] = stand_in if before is None else _around(before, stand_in)
            for name, inner in _INNER.items():
                if inner is function:
                    self._put_inner(name, inner)
        if not self._entered:
            self._entered = True
            self.__enter__()  # type: ignore[no-untyped-call]

    def end(self) -> None:
        if self._entered:
            self._entered = False
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        for name, original in self._inner.items():
            setattr(functional, name, original)
        self._inner.clear()
        self._table.clear()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        stand_in = self._table.get(func)
        if stand_in is None or self._inside or self.aside:
            return func(*args, **(kwargs or {}))
        return self._call(stand_in, func, args, kwargs or {})

    def _put_inner(self, name: str, original: Any) -> None:
        def inner(*args: Any, **kwargs: Any) -> Any:
            stand_in = self._table.get(original)
            if stand_in is None or self._inside or self.aside:
                return original(*args, **kwargs)
            return self._call(stand_in, original, args, kwargs)

        self._inner[name] = original
        setattr(functional, name, inner)

    def _call(self, stand_in: StandIn, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._inside = True
        try:
            return stand_in(function, *args, **kwargs)
        finally:
            self._inside = False


def _around(inner: StandIn, outer: StandIn) -> StandIn:
    """Both, for a function that two changes replace: what ``outer`` takes for the original is ``inner``."""

    def both(original: Any, *args: Any, **kwargs: Any) -> Any:
        return outer(partial(inner, original), *args, **kwargs)

    return both
