"""A second module that runs without gradients on the very parameters that are trained.

``copy.copy(model)`` makes a new module around the same tensors. As a target network, a momentum encoder or a reference
it is no copy at all: it moves with every update. A model that is itself called without gradients is none, unless the
script also holds it under the name of a reference.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator
from typing import Any

from torch import nn

from steadytrain.capture.looks.aliased_references import REFERENCE
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.step.script_frames import is_user, running_frames, variables_of

STEPS = 32
"""Steps in which calls are counted: the first ones, and the last ones before step 64, 128, 256, ..."""

NAMES = re.compile(rf"{REFERENCE.pattern}|_?ref|_?(prev|previous)_?(model|policy|net\w*|task_?model)")
LISTS = re.compile(
    r"(?i)_?((prev|previous|old|frozen|past)_?(models|nets|networks|tasks)?|teachers|refs|references|snapshots)"
)
"""Names of a reference, and of a list of such."""

ALMOST_ALL = 30
"""Of these steps, those in which a reference has to run at least."""

HELD_MAX = 64
"""Entries of a list that are looked through."""

Kind = tuple[type[nn.Module], tuple[int, ...]]
"""The class of a module and its parameters by id."""


class SharedCopies:
    """Counts the calls of outermost modules, with and without gradients."""

    def __init__(self) -> None:
        self._trained: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._aside: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()
        self._in_step: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._steps, self._until = 0, STEPS
        self._told = False

    def called(self, module: nn.Module) -> None:
        """A call with gradients."""
        if self._counts():
            self._trained.add(module)

    def called_aside(self, module: nn.Module) -> None:
        """A call without gradients."""
        if self._counts():
            self._in_step.add(module)

    def rows(self, stream: Stream) -> Iterator[tuple[str, float]]:
        """``shared-copy:CLASS`` is the steps of ``STEPS`` in which such a module ran, ``second-name:NAME`` those in
        which the trained model itself ran, which the script holds under that name as well."""
        counts, self._steps = self._counts(), self._steps + 1
        if not counts:
            return
        for module in self._in_step:
            self._aside[module] = self._aside.get(module, 0) + 1
        self._in_step.clear()
        if self._steps < self._until:
            return
        yield from self._found(stream)
        self._until *= 2
        self._trained.clear()
        self._aside.clear()

    def _counts(self) -> bool:
        return not self._told and self._steps >= self._until - STEPS

    def _found(self, stream: Stream) -> Iterator[tuple[str, float]]:
        held = {id(one) for one in stream.parameters}
        models = {kind_of(one) for one in self._trained}
        for module, steps in self._aside.items():
            kind = kind_of(module)
            if kind not in models or not kind[1] or not held.issuperset(kind[1]):
                continue
            name = _reference(module) if module in self._trained and steps >= ALMOST_ALL else ""
            self._told = bool(name) or module not in self._trained
            if self._told:
                yield f"second-name:{name}" if name else f"shared-copy:{type(module).__name__}", float(steps)
                return


def _reference(module: nn.Module) -> str:
    """The name of a reference or target under which a running function of the script holds ``module``; "" if none."""
    for frame in running_frames():
        if is_user(frame) and "-packages" not in frame.f_code.co_filename:
            for name, value in variables_of(frame):
                if _is_reference(name, value, module):
                    return _named(name, value)
                if name == "self":
                    for inner, held in getattr(value, "__dict__", {}).items():
                        if _is_reference(inner, held, module):
                            return _named(f"self.{inner}", held)
    return ""


def _named(name: str, value: Any) -> str:
    return f"an entry of {name}" if isinstance(value, (list, tuple)) else name


def _is_reference(name: str, value: Any, module: nn.Module) -> bool:
    if isinstance(value, (list, tuple)):
        return bool(LISTS.fullmatch(name)) and any(one is module for one in value[:HELD_MAX])
    return value is module and bool(NAMES.fullmatch(name))


def kind_of(module: nn.Module) -> Kind:
    try:
        return type(module), tuple(id(one) for one in module.parameters())
    except (AttributeError, RuntimeError):
        return type(module), ()  # its __init__ has not run
