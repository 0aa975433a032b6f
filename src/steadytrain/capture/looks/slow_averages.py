"""Measures how fast an average of the model's weights, which the script evaluates, follows the model.

An exponential moving average takes a share of the distance to the model in each update. After so many updates the rest
is still what the average began with. In half precision the steps of an average may be smaller than the last bit of its
values: they round away, and it stops far from the model.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.module_hooks import ModuleHook, Report, hook_before
from steadytrain.capture.looks.half_shadows import (
    FROM_STEP,
    HALVES,
    STEPS_MAX,
    UPDATES,
    HalfShadows,
    bits_kept,
)
from steadytrain.capture.looks.kept_statistics import KeptStatistics
from steadytrain.capture.looks.model_copies import copies_of, kind_of, models_of, sampled, share_of_way
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.tensors.activations.compiled import something_was_compiled

COPIES_MAX = 4
FIT_MIN = 0.9
"""Share of a copy's change that the step towards the model explains: rounding leaves some of small ones."""

ASIDE_SHARE = 0.25
"""A copy that is called in more of the steps is a target of the loss, and may be slow."""


@dataclass
class _Average:
    """One copy, its values before the last update, and the shares that it took of the distance."""

    name: str
    copy: weakref.ref[nn.Module]
    model: weakref.ref[nn.Module]
    values: tuple[Tensor, ...]
    statistics: KeptStatistics
    shares: list[float] = field(default_factory=list)
    kept: list[float] = field(default_factory=list)
    moved: list[int] = field(default_factory=list)
    """The steps in which it moved."""

    called: bool = False
    steps_called: int = 0
    remove: Callable[[], None] = lambda: None

    @property
    def every(self) -> float:
        """The number of updates of the model for each of its own."""
        return max(1.0, (self.moved[-1] - self.moved[0]) / (len(self.moved) - 1)) if len(self.moved) > 1 else 1.0


class SlowAverages:
    """Serves one stream. Hooks are on copies of its models only, from the 64th update on."""

    def __init__(self) -> None:
        self._found: list[_Average] = []
        self._shadows = HalfShadows()

    def updated(self, stream: Stream, counts: Callable[[], bool], report: Report) -> None:
        """Before an update of ``stream``, when the averages have taken in the one before.

        Args:
            counts: whether a call comes from the script now.
            report: gets our own errors.
        """
        for one in self._found:
            one.steps_called, one.called = one.steps_called + one.called, False
        self._shadows.updated(stream)
        step = stream.own_steps
        if step == FROM_STEP and not something_was_compiled():
            models = {kind_of(one): weakref.ref(one) for one in models_of(stream)}
            for copy in copies_of(stream)[:COPIES_MAX]:
                self._found.append(_follow(copy, models[kind_of(copy)], counts, report))
        elif FROM_STEP < step <= FROM_STEP + STEPS_MAX:
            for one in self._found:
                if len(one.moved) < UPDATES:
                    _measure(one, step)

    def release(self) -> None:
        """Take the hooks off."""
        for one in self._found:
            one.remove()

    def rows(self, stream: Stream) -> Iterator[tuple[str, float]]:
        """``first-weights:CLASS``, at the end of the script, is the share of its first values that an average which was
        evaluated still has: of several the fastest, the others stand beside it. ``kept-bits:CLASS`` is the share of the
        values of one in half precision that kept their bits through an update, though they are not those of the model;
        ``target-bits:CLASS`` is the same of a target network, which runs in the steps.
        ``kept-statistics:CLASS`` is the share of the channels of batch norms whose first statistics a copy was
        evaluated with, though its weights moved, and those of the model are others."""
        yield from self._shadows.rows()
        first: dict[str, float] = {}
        for one in self._found:
            steps, called = stream.own_steps, one.steps_called + one.called
            if called and one.statistics.share > 0.0:
                yield f"kept-statistics:{one.name}", one.statistics.share
            is_target = called > max(1, ASIDE_SHARE * steps)
            if len(one.kept) == UPDATES:  # one that is not called may be copied into another that is
                yield f"{'target' if is_target else 'kept'}-bits:{one.name}", min(one.kept)
            if is_target or not called:
                continue
            if len(one.shares) < UPDATES:
                continue
            share = sorted(one.shares)[len(one.shares) // 2]
            if share > 0.0 and max(one.shares) < 2.0 * share:
                left = (1.0 - share) ** (steps / one.every)
                first[one.name] = min(left, first.get(one.name, 1.0))
        yield from ((f"first-weights:{name}", left) for name, left in first.items())


def _is_half(module: nn.Module) -> bool:
    first = next(module.parameters(), None)
    return first is not None and first.dtype in HALVES


def _follow(copy: nn.Module, model: weakref.ref[nn.Module], counts: Callable[[], bool], report: Report) -> _Average:
    kept = KeptStatistics(copy, model())
    one = _Average(type(copy).__name__, weakref.ref(copy), model, sampled(copy), kept)

    def called(_: nn.Module, args: Any) -> None:
        if not one.called and counts():
            one.called = True
            kept.called()

    one.remove = hook_before(copy, ModuleHook(called, report)).remove
    return one


@torch.no_grad()
def _measure(one: _Average, step: int) -> None:
    """Add the share of the distance to the model that the copy took in the last update, if it took one."""
    copy, model = one.copy(), one.model()
    if copy is None or model is None:
        return
    before, one.values = one.values, sampled(copy)
    if not before or [part.shape for part in before] != [part.shape for part in one.values]:
        return
    was, now, there = (torch.cat([part.double() for part in parts]) for parts in (before, one.values, sampled(model)))
    change, distance = now - was, there - was
    if bool(change.any()):
        one.moved.append(step)
    kept = bits_kept(before, one.values, sampled(model)) if _is_half(copy) else None
    if kept is not None:
        one.kept.append(kept)
    share, explained = share_of_way(change, distance)
    if 0.0 < share < 1.0 and explained >= FIT_MIN:
        one.shares.append(share)
