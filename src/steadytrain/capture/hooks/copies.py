"""Keeps our hooks out of copies, pickles and saved files of watched modules."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from steadytrain.capture.hooks.module_hooks import VanishingHook
from steadytrain.core.torch_private import HOOKS_OF_MODULES

REDUCE = "__reduce_ex__"


def put_reduce() -> Callable[[], None]:
    """Patch :class:`torch.nn.Module` so that ``copy`` and ``pickle`` skip our hooks; returns the undo function.

    ``torch.nn.Module`` has no ``__reduce_ex__`` of its own. The patched one calls the next class in the method
    resolution order, so a ``__reduce_ex__`` of the script's classes still runs.
    """

    def reduce(self: nn.Module, protocol: Any) -> Any:
        reduced = super(nn.Module, self).__reduce_ex__(protocol)
        if isinstance(reduced, tuple) and len(reduced) > 2:
            return (*reduced[:2], without_hooks(reduced[2]), *reduced[3:])
        return reduced

    functools.update_wrapper(reduce, object.__reduce_ex__)
    if REDUCE in vars(nn.Module):
        return lambda: None  # other code has patched it; our hooks then vanish through their own ``__reduce__``
    setattr(nn.Module, REDUCE, reduce)

    def undo() -> None:
        if vars(nn.Module).get(REDUCE) is reduce:
            delattr(nn.Module, REDUCE)

    return undo


def without_hooks(state: Any) -> Any:
    """A module's state without our hooks. A state that has none is returned unchanged."""
    if isinstance(state, tuple) and len(state) == 2:
        return without_hooks(state[0]), state[1]
    if not isinstance(state, dict):
        return state
    cleaned = {}
    for place in HOOKS_OF_MODULES:
        hooks = state.get(place)
        ours = [key for key, hook in _entries(hooks) if isinstance(hook, VanishingHook)]
        for name in (place, f"{place}_with_kwargs", f"{place}_always_called") if ours else ():
            if isinstance(state.get(name), Mapping):
                cleaned[name] = _less(state[name], ours)
    return {**state, **cleaned} if cleaned else state


def _entries(hooks: Any) -> list[tuple[Any, Any]]:
    return list(hooks.items()) if isinstance(hooks, Mapping) else []


def _less(table: Any, keys: list[Any]) -> Any:
    rest = type(table)()
    rest.update((key, value) for key, value in table.items() if key not in keys)
    return rest
