"""A module that nothing trains runs beside the model with its dropout on.

A teacher, a reference or a reward model gives what the model is compared with. In training mode its dropout changes its
outputs from call to call. Copies whose weights follow the model (mean teacher, momentum encoder) may be noisy on
purpose, and are left alone, and so is a module that is called several times for the same rows. A frozen part of the
model counts only where it runs without gradients.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.model_discovery import is_made, living_modules
from steadytrain.capture.hooks.module_hooks import ModuleHook, Report, hook_before
from steadytrain.capture.looks.model_copies import sampled
from steadytrain.capture.looks.row_keys import row_keys
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.core.living_objects import instances
from steadytrain.core.torch_private import CHILDREN, COMPILED_CALL

SEARCH_STEP = 2
STEPS = 32
"""Steps in which calls are counted, from the search on."""

MODULES_MAX = 4
DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)


@dataclass
class _Teacher:
    """One module. ``apart`` says that it is no part of a trained model."""

    module: weakref.ref[nn.Module]
    apart: bool
    values: tuple[Tensor, ...]
    remove: Callable[[], None] = lambda: None
    called: bool = False
    steps: int = 0
    averaged: bool = False
    """Whether it was called twice in a row with the same rows: the mean over several masks may be meant."""


class NoisyTeachers:
    """Counts the calls of such modules in the first steps of a stream.

    Args:
        counts: whether a call comes from the script now.
        report: gets our own errors.
    """

    def __init__(self, counts: Callable[[], bool], report: Report) -> None:
        self._counts, self._report = counts, report
        self._teachers: list[_Teacher] = []
        self._stream = self._steps = 0

    def search(self, stream: Stream) -> None:
        """Find the modules with dropout that ``stream`` does not train, and follow their calls."""
        if self._stream or not any(_drops(one) for one in instances(*DROPOUTS)):
            return
        self._stream = id(stream)
        held = {id(one) for one in stream.parameters}
        modules = living_modules()
        inside = {id(child) for one in modules for child in CHILDREN.of(one).values()}
        trained = {id(one) for one in stream.roots()}
        for top in (one for one in modules if id(one) not in inside):
            for module in _untrained(top, held):
                if len(self._teachers) < MODULES_MAX and COMPILED_CALL.on(module) is None:
                    self._follow(module, apart=id(top) not in trained)

    def rows(self, stream: Stream) -> Iterator[tuple[str, float]]:
        """``noisy-teacher:CLASS``, or ``noisy-part:CLASS`` of a part of the model, is the steps of the ``STEPS`` after
        the search in which such a module ran and stayed as it was."""
        if id(stream) != self._stream or self._steps >= STEPS:
            return
        self._steps += 1
        for one in self._teachers:
            one.steps, one.called = one.steps + one.called, False
        if self._steps < STEPS:
            return
        for one in self._teachers:
            module = one.module()
            same = zip(sampled(module), one.values, strict=False) if module is not None and one.steps else ()
            if module is not None and one.steps and not one.averaged and all(torch.equal(*each) for each in same):
                yield f"noisy-{'teacher' if one.apart else 'part'}:{type(module).__name__}", float(one.steps)
        self.remove()

    def remove(self) -> None:
        """Take all hooks away."""
        for one in self._teachers:
            one.remove()
        self._teachers = []

    def _follow(self, module: nn.Module, *, apart: bool) -> None:
        teacher = _Teacher(weakref.ref(module), apart, sampled(module))

        before: list[Tensor | None] = [None]

        def called(module: nn.Module, args: Any) -> None:
            if self._counts() and not teacher.averaged:
                keys, last = row_keys(args, {}), before[0]
                before[0] = keys
                teacher.averaged = keys is not None and last is not None and torch.equal(keys, last)
            if not teacher.called and (apart or not torch.is_grad_enabled()) and self._counts():
                teacher.called = any(_drops(one) for one in module.modules())

        teacher.remove = hook_before(module, ModuleHook(called, self._report)).remove
        self._teachers.append(teacher)


def _untrained(module: nn.Module, held: set[int]) -> Iterator[nn.Module]:
    """``module`` or the largest modules in it that have parameters, dropout, and nothing that is trained."""
    parameters = {id(one) for one in module.parameters()}
    if not parameters or not any(_drops(one) for one in module.modules()):
        return
    if parameters.isdisjoint(held):
        yield module
        return
    for child in CHILDREN.of(module).values():
        if child is not None and is_made(child):
            yield from _untrained(child, held)


def _drops(module: nn.Module) -> bool:
    return isinstance(module, DROPOUTS) and module.training and module.p > 0.0
