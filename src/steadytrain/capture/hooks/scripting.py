"""Keeps our hooks out of TorchScript, which would compile them with the module that it scripts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from steadytrain.capture.hooks.module_hooks import VanishingHook
from steadytrain.core.torch_names import MissingNameError
from steadytrain.core.torch_private import HOOKS_OF_MODULES, SCRIPTED


def put_script() -> Callable[[], None]:
    """Patch the function that makes a scripted module, so that it finds none of our hooks; returns the undo function.

    Without that private function nothing is patched.
    """
    try:
        owner, original = SCRIPTED.owner(), SCRIPTED.now()
    except MissingNameError:
        return lambda: None

    @functools.wraps(original)
    def create(module: Any, *args: Any, **kwargs: Any) -> Any:
        with hooks_hidden(module):
            return original(module, *args, **kwargs)

    setattr(owner, SCRIPTED.attribute, create)

    def undo() -> None:
        if getattr(owner, SCRIPTED.attribute) is create:
            setattr(owner, SCRIPTED.attribute, original)

    return undo


@contextmanager
def hooks_hidden(module: Any) -> Iterator[None]:
    """Our hooks on the module and on all below it are taken off, and put back in their place afterwards."""
    taken: list[tuple[Any, list[tuple[Any, Any]]]] = []
    try:
        for part in module.modules() if isinstance(module, nn.Module) else ():
            for place in HOOKS_OF_MODULES:
                table = vars(part).get(place)
                if table and any(isinstance(hook, VanishingHook) for hook in table.values()):
                    before = list(table.items())
                    taken.append((table, before))
                    for key, hook in before:
                        if isinstance(hook, VanishingHook):
                            del table[key]
        yield
    finally:
        for table, before in taken:
            meanwhile = [(key, hook) for key, hook in table.items() if key not in dict(before)]
            table.clear()
            table.update([*before, *meanwhile])
