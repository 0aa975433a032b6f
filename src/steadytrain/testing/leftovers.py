"""What of steadytrain stands in torch, on modules and in threads at this moment: nothing, once a watch is over.

It searches everything that torch has loaded for code of this package, and does not ask the watcher what it put where.
"""

from __future__ import annotations

import functools
import gc
import sys
import threading
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import optimizer as optimizer_module

KINDS_MAX = 10_000
_PACKAGE = str(Path(__file__).parents[1])
_TESTING = str(Path(__file__).parent)
_HOOKS_OF_MODULES = (
    *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"),
    *("_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"),
)
_HOOKS_OF_OPTIMIZERS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
_HOOKS_OF_TENSORS = ("_backward_hooks", "_post_accumulate_grad_hooks")
_HOOKS_OF_ALL = (
    *("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks", "_global_backward_pre_hooks"),
    *("_global_module_registration_hooks", "_global_parameter_registration_hooks", "_global_buffer_registration_hooks"),
)


def leftovers() -> list[str]:
    """Each place of ours, in words."""
    return sorted({*_patched(), *_hooked(), *_threads()})


def _patched() -> Iterator[str]:
    classes: dict[int, type] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "torch" or not isinstance(module, types.ModuleType):
            continue
        for key, value in list(vars(module).items()):
            if issubclass(type(value), type):
                classes[id(value)] = value
            elif _is_ours(value):
                yield f"{name}.{key}"
    for kind in classes.values():
        if str(kind.__module__).startswith("torch"):
            yield from (f"{kind.__qualname__}.{key}" for key, value in list(vars(kind).items()) if _is_ours(value))


def _hooked() -> Iterator[str]:
    for place in ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"):
        yield from _ours_in(getattr(optimizer_module, place), f"every optimizer: {place}")
    for place in _HOOKS_OF_ALL:
        yield from _ours_in(getattr(nn.modules.module, place, None), f"every module: {place}")
    for thing in gc.get_objects():
        kind = type(thing)
        if issubclass(kind, nn.Module):
            for place in (*_HOOKS_OF_MODULES, "_parameters", "_compiled_call_impl"):
                held = thing.__dict__.get(place)
                if place == "_parameters":
                    for name, parameter in (held or {}).items():
                        yield from _on_tensor(parameter, f"{kind.__name__}.{name}")
                elif place == "_compiled_call_impl":
                    if _is_ours(held):
                        yield f"{kind.__name__}: {place}"
                else:
                    yield from _ours_in(held, f"{kind.__name__}: {place}")
        elif issubclass(kind, torch.optim.Optimizer):
            for place in _HOOKS_OF_OPTIMIZERS:
                yield from _ours_in(thing.__dict__.get(place), f"{kind.__name__}: {place}")


def _on_tensor(tensor: Any, name: str) -> Iterator[str]:
    for place in _HOOKS_OF_TENSORS if isinstance(tensor, torch.Tensor) else ():
        yield from _ours_in(getattr(tensor, place, None), f"{name}: {place}")


def _threads() -> Iterator[str]:
    for thread in threading.enumerate():
        if thread.name.startswith("steadytrain") or type(thread).__module__.startswith("steadytrain."):
            yield f"thread {thread.name}"


def _ours_in(hooks: Any, where: str) -> Iterator[str]:
    if isinstance(hooks, Mapping) and any(_is_ours(hook) for hook in list(hooks.values())):
        yield where


def _is_ours(value: Any) -> bool:
    """Whether it is code of steadytrain, or an object of a class of ours, and not of the tests' own helpers.

    Its type is asked, never ``isinstance``: some things in torch warn, or wake up, when their ``__class__`` is read.
    """
    if type(value) in (staticmethod, classmethod, types.MethodType):
        value = value.__func__
    if type(value) is types.FunctionType:
        file = value.__code__.co_filename
        return file.startswith(_PACKAGE) and not file.startswith(_TESTING)
    kind: Any = type(value)
    return _is_kind_of_ours(kind)


@functools.lru_cache(maxsize=KINDS_MAX)
def _is_kind_of_ours(kind: Any) -> bool:
    module = kind.__module__
    return (
        isinstance(module, str) and module.startswith("steadytrain.") and not module.startswith("steadytrain.testing")
    )
