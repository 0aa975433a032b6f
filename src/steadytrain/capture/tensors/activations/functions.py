"""Wraps functions of torch while a measured forward runs: attention, softmax and cross entropy.

A wrapper reports the arguments and calls the original with them. It affects callers that look the function up by name
at the time of the call. A ``TorchFunctionMode`` would see more calls. But with such a mode torch avoids the fast paths
of its transformer layers, and the script's numbers would change.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

See = Callable[[str, tuple[Any, ...], dict[str, Any]], None]


class Functions:
    """Installs and removes the wrappers. ``see`` receives a name and the arguments, and must not raise."""

    def __init__(self, see: See) -> None:
        self._see = see
        self._undo: list[Callable[[], None]] = []

    def put_in_for_forward(self) -> None:
        self._put(functional, "scaled_dot_product_attention", "attention")
        self._put(functional, "softmax", "softmax")
        self._put(torch, "softmax", "softmax")
        self._put(Tensor, "softmax", "softmax")
        self.put_in_for_loss()

    def put_in_for_loss(self) -> None:
        self._put(functional, "cross_entropy", "cross_entropy")

    def take_out(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _put(self, owner: Any, name: str, kind: str) -> None:
        own = vars(owner).get(name)
        stand_in = _shown(getattr(owner, name), kind, self._see)

        def undo() -> None:
            if vars(owner).get(name) is not stand_in:
                return  # other code has wrapped it since
            if own is None:
                delattr(owner, name)
            else:
                setattr(owner, name, own)

        setattr(owner, name, stand_in)
        self._undo.append(undo)


def _shown(original: Callable[..., Any], kind: str, see: See) -> Callable[..., Any]:
    @functools.wraps(original)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            see(kind, args, kwargs)
        return original(*args, **kwargs)

    return stand_in
