"""What torch itself calls: hooks on modules and optimizers, and the stand-in for ``clip_grad_norm_``.

This file is kept apart because torch.compile may trace through it. Every entry leaves at once while a graph is
being traced, so a compiled model contains nothing of ours (no graph break, no recompile, tested by counting), and a
compiled optimizer step is transparent. Everything that does work lies in other files, which the compiler skips.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch


class VanishingHook:
    """A hook on a module that is not there in a copy or a pickle of the module.

    A copy of a watched model (an EMA twin, a checkpoint of the whole module) must not drag the watcher along, nor
    need steadytrain to be loaded. ``copies.put_reduce`` leaves the hook out. Where a class copies itself in its own
    way, the copy gets ``nullcontext().__exit__`` instead: a callable of the standard library that takes the hook's
    arguments and returns None.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return contextlib.nullcontext().__exit__


class ModuleHook(VanishingHook):
    """Calls ``function`` with what torch hands to a hook, but never while a graph or ``torch.jit`` traces."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any) -> Any:
        if torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
            return None
        return self.function(*args)


class OptimizerHook:
    """A global optimizer hook; what ``function`` returns may replace the arguments of ``step``."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return None
        return self.function(optimizer, args, kwargs)


def zero_grad_wrapper(original: Callable[..., None], before: Callable[[Any], None]) -> Callable[..., None]:
    """``zero_grad`` of an optimizer or a module, telling ``before`` whose it is."""

    @functools.wraps(original)
    def zero_grad(self: Any, *args: Any, **kwargs: Any) -> None:
        if not torch.compiler.is_compiling():
            before(self)
        original(self, *args, **kwargs)

    return zero_grad


class ClipGradients:
    """Stands in for torch's ``clip_grad_norm_`` or ``clip_grad_value_``: lets us look at the gradients before."""

    def __init__(self, original: Callable[..., Any], watch: Callable[..., Any]) -> None:
        self.original = original
        self.watch = watch
        self.__wrapped__ = original
        self.__name__ = original.__name__
        self.__doc__ = original.__doc__

    def __call__(self, parameters: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.original(parameters, *args, **kwargs)
        if not isinstance(parameters, (torch.Tensor, list, tuple)):
            parameters = list(parameters)  # a generator can be walked once, and torch has to walk it too
        return self.watch(self.original, parameters, args, kwargs)
