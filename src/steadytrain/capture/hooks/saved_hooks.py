"""Whether the script has put hooks on saved tensors, for a torch that does not say it of a single tensor.

Reading a saved tensor runs its unpack hook, such as the second forward of a checkpointed block. Newer versions of torch
tell whether a tensor has one (``SAVED_HOOK``). On older ones the two ways to put hooks are patched instead, and after
the first use of either no saved tensor is read any more.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch.autograd.graph import saved_tensors_hooks

from steadytrain.core.torch_names import MissingNameError
from steadytrain.core.torch_private import SAVED_HOOK

_UNKNOWN = object()


class _Script:
    puts_hooks = False
    """Whether it has put hooks while the patches are applied. Stays False on a torch that tells it of each tensor."""


def reading_runs_a_hook(saved: Any) -> bool:
    """Whether reading the tensor behind ``saved``, a ``_raw_saved_...`` of a graph node, may run a script's hook."""
    hook = SAVED_HOOK.on(saved, _UNKNOWN)
    if hook is _UNKNOWN:
        return _Script.puts_hooks or hasattr(type(saved), SAVED_HOOK.attribute)  # the latter: a backward has freed it
    return hook is not None


def put_saved_hooks() -> Callable[[], None]:
    """Note from now on whether the script puts hooks on saved tensors; returns the undo function.

    Nothing is patched on a torch that tells it of each tensor.
    """
    try:
        saved_tensor = SAVED_HOOK.owner()
    except MissingNameError:
        return lambda: None
    if hasattr(saved_tensor, SAVED_HOOK.attribute):
        return lambda: None
    undos = _put(saved_tensors_hooks, "__enter__"), _put(saved_tensor, "register_hooks")

    def undo() -> None:
        for one in undos:
            one()
        _Script.puts_hooks = False

    return undo


def _put(owner: Any, name: str) -> Callable[[], None]:
    original = vars(owner)[name]  # what ``getattr`` gives for a method of torch's C++ classes cannot be put back

    @functools.wraps(getattr(owner, name))
    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
        _Script.puts_hooks = True
        return original.__get__(self)(*args, **kwargs)

    setattr(owner, name, noting)

    def undo() -> None:
        if vars(owner).get(name) is noting:
            setattr(owner, name, original)

    return undo
