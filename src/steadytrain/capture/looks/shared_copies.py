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

SHARE = 0.5
"""The module has to run in this share of them: one that is evaluated now and then is no target."""


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
        models = {(type(one), _ids(one)) for one in self._trained}
        for module, steps in self._aside.items():
            ids = _ids(module)
            fits = module not in self._trained and (type(module), ids) in models
            if fits and steps >= SHARE * STEPS and ids and held.issuperset(ids):
                yield f"shared-copy:{type(module).__name__}", float(steps)
                return


def _ids(module: nn.Module) -> tuple[int, ...]:
    return tuple(id(one) for one in module.parameters())
