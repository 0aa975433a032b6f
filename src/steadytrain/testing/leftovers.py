"""Find what steadytrain has installed in torch, on modules and in threads: nothing, once a watch is over.

It searches everything that torch has loaded for code of this package, and does not ask the watcher.
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

from steadytrain.core.torch_private import (
    COMPILED_CALL,
    HOOKS_OF_EVERY_MODULE,
    HOOKS_OF_EVERY_OPTIMIZER,
    HOOKS_OF_MODULES,
    HOOKS_OF_OPTIMIZERS,
    HOOKS_OF_TENSORS,
    PARAMETERS,
)

KINDS_MAX = 10_000
_PACKAGE = str(Path(__file__).parents[1])
_TESTING = str(Path(__file__).parent)


def leftovers() -> list[str]:
    """A text for each place with our code. Runs the garbage collector first, so unreachable objects do not count."""
    gc.collect()
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
    for place in HOOKS_OF_EVERY_OPTIMIZER:
        yield from _ours_in(getattr(optimizer_module, place), f"every optimizer: {place}")
    for place in HOOKS_OF_EVERY_MODULE:
        yield from _ours_in(getattr(nn.modules.module, place, None), f"every module: {place}")
    for thing in gc.get_objects():
        kind = type(thing)
        if issubclass(kind, nn.Module):
            for place in (*HOOKS_OF_MODULES, PARAMETERS.attribute, COMPILED_CALL.attribute):
                held = thing.__dict__.get(place)
                if place == PARAMETERS.attribute:
                    for name, parameter in (held or {}).items():
                        yield from _on_tensor(parameter, f"{kind.__name__}.{name}")
                elif place == COMPILED_CALL.attribute:
                    if _is_ours(held):
                        yield f"{kind.__name__}: {place}"
                else:
                    yield from _ours_in(held, f"{kind.__name__}: {place}")
        elif issubclass(kind, torch.optim.Optimizer):
            for place in HOOKS_OF_OPTIMIZERS:
                yield from _ours_in(thing.__dict__.get(place), f"{kind.__name__}: {place}")


def _on_tensor(tensor: Any, name: str) -> Iterator[str]:
    for place in HOOKS_OF_TENSORS if isinstance(tensor, torch.Tensor) else ():
        yield from _ours_in(getattr(tensor, place, None), f"{name}: {place}")


def _threads() -> Iterator[str]:
    for thread in threading.enumerate():
        if thread.name.startswith("steadytrain") or type(thread).__module__.startswith("steadytrain."):
            yield f"thread {thread.name}"


def _ours_in(hooks: Any, where: str) -> Iterator[str]:
    if isinstance(hooks, Mapping) and any(_is_ours(hook) for hook in list(hooks.values())):
        yield where


def _is_ours(value: Any) -> bool:
    """Whether a value is code of steadytrain, or an object of one of our classes, except the tests' own helpers.

    This uses ``type``, never ``isinstance``: reading ``__class__`` makes some objects in torch warn or initialise.
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
