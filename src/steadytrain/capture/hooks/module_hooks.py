"""The callables that torch itself calls: hooks on modules and optimizers, and the wrapper of ``clip_grad_norm_``.

This file is separate because torch.compile may trace through it. Every entry returns at once while a graph is being
traced. So a compiled model contains nothing of ours (no graph break, no recompile; tests count them), and a compiled
optimizer step is unaffected. All work happens in other files, which the compiler skips.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

Report = Callable[[str, Exception], None]
"""Reports an error of ours, with the place where it happened."""


class VanishingHook:
    """A module hook that does not appear in a copy or a pickle of the module.

    A copy of a watched model (an EMA copy, a checkpoint of the whole module) must not contain the watcher, and must
    load without steadytrain. ``copies.put_reduce`` leaves the hook out. If a class copies itself in its own way, the
    copy gets ``nullcontext().__exit__`` instead: a callable of the standard library that takes the hook's arguments
    and returns None.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return contextlib.nullcontext().__exit__


class ModuleHook(VanishingHook):
    """Calls ``function`` with the arguments of the hook, but never while torch.compile or ``torch.jit`` traces.

    An error of ``function`` goes to ``report`` (:meth:`Guard.report`), not to the script.
    """

    def __init__(self, function: Callable[..., Any], report: Report) -> None:
        self.function = function
        self._report = report

    def __call__(self, *args: Any) -> Any:
        if torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
            return None
        try:
            return self.function(*args)
        except Exception as error:
            self._report("following the calls of a module", error)


def hook_before(module: torch.nn.Module, hook: Callable[..., Any], *, with_kwargs: bool = False) -> RemovableHandle:
    """Put ``hook`` before the calls of a module.

    A scripted module refuses hooks, because TorchScript would not see them. A call from Python runs them all the same,
    so they are registered with the method of ``torch.nn.Module``.
    """
    return torch.nn.Module.register_forward_pre_hook(module, hook, with_kwargs=with_kwargs)


def hook_after(
    module: torch.nn.Module, hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Put ``hook`` after the calls of a module, as :func:`hook_before`."""
    return torch.nn.Module.register_forward_hook(module, hook, with_kwargs=with_kwargs, always_call=always_call)


def nothing(*_: Any) -> None:
    """Ignores an event."""


class OptimizerHook:
    """A global optimizer hook. The return value of ``function`` may replace the arguments of ``step``."""

    def __init__(self, function: Callable[..., Any], report: Report) -> None:
        self.function = function
        self._report = report

    def __call__(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return None
        try:
            return self.function(optimizer, args, kwargs)
        except Exception as error:
            self._report("following an optimizer", error)


def zero_grad_wrapper(original: Callable[..., None], before: Callable[[Any], None]) -> Callable[..., None]:
    """A ``zero_grad`` that calls ``before`` with its optimizer or module first."""

    @functools.wraps(original)
    def zero_grad(self: Any, *args: Any, **kwargs: Any) -> None:
        if not torch.compiler.is_compiling():
            before(self)
        original(self, *args, **kwargs)

    return zero_grad


def clip_wrapper(original: Callable[..., Any], around: Callable[..., Any]) -> Callable[..., Any]:
    """Torch's ``clip_grad_norm_`` or ``clip_grad_value_``, which lets us read the gradients before the clip.

    A function, as the original is: it pickles by its name, and is inspected as the original.

    Args:
        around: ``watch``, which gets ``original`` before the arguments of the call and calls it once.
    """

    @functools.wraps(original)
    def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(parameters, *args, **kwargs)
        if not isinstance(parameters, (torch.Tensor, list, tuple)):
            parameters = list(parameters)  # a generator can be read only once, and torch must read it too
        return around(parameters, *args, **kwargs)

    return clip
