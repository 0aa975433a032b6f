"""Keeps the script's hooks on complete gradients from running while a step is traced again.

Such a hook may be the update itself: an optimizer for each parameter steps inside of the backward.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import Tensor

from steadytrain.core.torch_private import HOOKS_OF_COMPLETE_GRADIENTS


@contextmanager
def without_hooks(parameters: Iterable[Tensor]) -> Iterator[None]:
    """Inside, no hook of ``parameters`` runs after their gradient is accumulated."""
    kept = [
        (hooks, list(hooks.items())) for one in parameters if (hooks := getattr(one, HOOKS_OF_COMPLETE_GRADIENTS, None))
    ]
    try:
        for hooks, _ in kept:
            hooks.clear()
        yield
    finally:
        for hooks, items in kept:
            hooks.clear()
            hooks.update(items)
