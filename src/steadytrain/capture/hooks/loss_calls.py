"""Reports the calls of torch's loss functions without gradients, while somebody listens.

``F.cross_entropy`` and the modules of ``torch.nn`` call a function of ``torch._C._nn``. That function is replaced, so
that a name which the script has imported is covered too. torch.compile may trace through this file, so it adds nothing
to a graph; TorchScript takes the replacements for the functions that they replace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from steadytrain.core.torch_names import MissingNameError
from steadytrain.core.torch_private import FIND_BUILTIN, LOSS_FUNCTIONS, REGISTER_BUILTIN

OF_TORCH = "binary_cross_entropy_with_logits"
FUNCTIONS = (
    *("cross_entropy_loss", "nll_loss_nd", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"),
    *("binary_cross_entropy", OF_TORCH),
)

Listener = Callable[[str, Any, Any], None]
"""Gets the name of the function, its arguments, and the loss that it returned. It raises nothing."""

_listeners: list[Listener] = []
_made: dict[str, tuple[Any, Any]] = {}
"""The original of each function and its replacement. They live as long as the process: TorchScript knows their ids."""


def listen(listener: Listener) -> None:
    """Report to ``listener`` from now on, and no longer to an earlier one."""
    if not _listeners:
        for name in FUNCTIONS:
            _put(name)
    _listeners[:] = [listener]


def stop_listening(listener: Listener) -> None:
    """Put the functions back, unless another listener has followed."""
    if _listeners != [listener]:
        return
    _listeners.clear()
    for name, (original, replacement) in _made.items():
        if getattr(_owner(name), name, None) is replacement:
            setattr(_owner(name), name, original)


def _owner(name: str) -> Any:
    return torch if name == OF_TORCH else LOSS_FUNCTIONS.get()


def _put(name: str) -> None:
    try:
        original = getattr(_owner(name), name, None)
        known, replacement = _made.get(name, (None, None))
        if original is None or original is replacement:
            return
        if known is not original:
            replacement = _replacement(name, original)
            operator = FIND_BUILTIN(original)  # it also makes torch's table, while that finds the originals
            if operator is not None:
                REGISTER_BUILTIN(replacement, operator)
            _made[name] = original, replacement
        setattr(_owner(name), name, replacement)
    except MissingNameError:
        return


def _replacement(name: str, original: Any) -> Any:
    def loss(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if torch.compiler.is_compiling() or torch.is_grad_enabled() or kwargs or not _listeners:
            return result
        _listeners[0](name, args, result)
        return result

    loss.__name__ = name
    return loss
