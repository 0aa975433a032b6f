"""A second module that runs without gradients on the very parameters that are trained.

``copy.copy(model)`` makes a new module around the same tensors. As a target network, a momentum encoder or a reference
it is no copy at all: it moves with every update. A model that is itself called without gradients is none.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator

from torch import nn

from steadytrain.capture.step.optimizer_streams import Stream

STEPS = 32
"""Steps in which calls are counted."""

Kind = tuple[type[nn.Module], tuple[int, ...]]
"""The class of a module and its parameters by id."""


class SharedCopies:
    """Counts the calls of outermost modules, with and without gradients, in the first steps."""

    def __init__(self) -> None:
        self._trained: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._aside: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()
        self._in_step: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._steps = 0

    def called(self, module: nn.Module) -> None:
        """A call with gradients."""
        if self._steps < STEPS:
            self._trained.add(module)

    def called_aside(self, module: nn.Module) -> None:
        """A call without gradients."""
        if self._steps < STEPS:
            self._in_step.add(module)

    def rows(self, stream: Stream) -> Iterator[tuple[str, float]]:
        """``shared-copy:CLASS`` is the steps of the first ``STEPS`` in which such a module ran."""
        if self._steps >= STEPS:
            return
        self._steps += 1
        for module in self._in_step:
            self._aside[module] = self._aside.get(module, 0) + 1
        self._in_step.clear()
        if self._steps < STEPS:
            return
        held = {id(one) for one in stream.parameters}
        models = {kind_of(one) for one in self._trained}
        for module, steps in self._aside.items():
            kind = kind_of(module)
            if module not in self._trained and kind in models and kind[1] and held.issuperset(kind[1]):
                yield f"shared-copy:{type(module).__name__}", float(steps)
                return


def kind_of(module: nn.Module) -> Kind:
    try:
        return type(module), tuple(id(one) for one in module.parameters())
    except (AttributeError, RuntimeError):
        return type(module), ()  # its __init__ has not run
