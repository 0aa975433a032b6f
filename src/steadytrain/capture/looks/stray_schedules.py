"""Finds a schedule that steps an optimizer which makes no step any more, while another one trains its parameters."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from steadytrain.capture.looks.plateau_modes import mentions
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.core.living_objects import living

SEARCH_STEPS = (64, 256)
TOLD_EVERY = 16
SHARED_MIN_SHARE = 0.5
"""Share of the parameters of one of the two optimizers that the other must hold."""

WRITTEN = "initial_lr"
"""What a schedule of torch writes into the groups of its optimizer."""


class StraySchedules:
    """Follows one stream, whose optimizers have no schedule."""

    def __init__(self) -> None:
        self._found: weakref.ref[Any] | None = None
        self._counted = self._stepped = 0
        self._rates: list[Any] = []

    def rows(self, stream: Stream, streams: Sequence[Stream]) -> Iterator[tuple[str, float]]:
        """``stray-schedule:CLASS``, with both optimizers, is how many steps the schedule has counted. It is told once,
        when the schedule has moved the rate of its optimizer since it was found, and the stream's rate stood."""
        if stream.own_steps in SEARCH_STEPS and self._found is None:
            self._search(stream, streams)
        schedule = self._found() if self._found is not None and stream.own_steps % TOLD_EVERY == 0 else None
        if schedule is None:
            return
        if _has_schedule(stream) or _rates(stream.optimizers) != self._rates or self._goes_on(schedule, streams):
            self._found = None
        elif schedule.last_epoch > self._counted and any(
            group["lr"] != group.get(WRITTEN, group["lr"]) for group in schedule.optimizer.param_groups
        ):
            self._found = None
            idle, used = type(schedule.optimizer).__name__, type(stream.optimizers[0]).__name__
            yield f"stray-schedule:{type(schedule).__name__} of {idle} beside {used}", float(schedule.last_epoch)

    def _goes_on(self, schedule: Any, streams: Sequence[Stream]) -> bool:
        """Whether the schedule's own optimizer has made a step since it was found."""
        return _steps(schedule.optimizer, streams) != self._stepped

    def _search(self, stream: Stream, streams: Sequence[Stream]) -> None:
        if _has_schedule(stream) or not mentions(r"(?i)scheduler|LR\("):
            return
        mine = {id(one) for one in stream.parameters}
        for one in living(LRScheduler):
            held = getattr(one, "optimizer", None)
            if isinstance(one, ReduceLROnPlateau) or not isinstance(held, torch.optim.Optimizer):
                continue
            theirs = {id(each) for group in held.param_groups for each in group["params"]}
            shared = len(mine & theirs)
            if not shared or shared < SHARED_MIN_SHARE * min(len(mine), len(theirs)):
                continue
            wraps = any(each in vars(held).values() or held in vars(each).values() for each in stream.optimizers)
            if not wraps and not any(held is each for each in stream.optimizers):
                self._found, self._counted = weakref.ref(one), int(one.last_epoch)
                self._stepped = _steps(held, streams)
                self._rates = _rates(stream.optimizers)
                return


def _has_schedule(stream: Stream) -> bool:
    """Whether a schedule of torch has written into the groups of the stream's optimizers."""
    return any(WRITTEN in group for one in stream.optimizers for group in one.param_groups)


def _steps(optimizer: torch.optim.Optimizer, streams: Sequence[Stream]) -> int:
    """The steps that ``optimizer`` has made."""
    return sum(stream.own_steps for stream in streams for one in stream.optimizers if one is optimizer)


def _rates(optimizers: Sequence[torch.optim.Optimizer]) -> list[Any]:
    return [float(group["lr"]) for one in optimizers for group in one.param_groups if "lr" in group]
