"""Inputs brought back to what they were before a step: to their scale, or into their range."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor

from steadytrain.capture.step.input_recorder import map_tensors
from steadytrain.survey.input_facts import feature_dimension
from steadytrain.trial_runs.changes import LiveChange
from steadytrain.trial_runs.launched_script import Launched

SCALE, RANGE = "scale", "range"

ROOM = 0.5
"""Values may leave the range of earlier ones by this share of it and still be like them."""


@dataclass
class _Before:
    """Per feature: the lowest and highest value, and mean and standard deviation of the last batch before."""

    low: Tensor
    high: Tensor
    mean: Tensor
    spread: Tensor


@final
@dataclass
class InputsAsBefore(LiveChange):
    """From the recorded ``step`` on, inputs of a step's first model call that leave the range of the steps before are
    shifted and scaled, feature by feature, to what those had (``how`` = scale), or limited to it (range)."""

    step: int
    how: str
    nothing = "no floating-point input lies outside of the range that its features had before the step"
    _before: dict[int, _Before] = field(default_factory=dict, init=False, repr=False)
    _now: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False, repr=False)

    def check(self) -> None:
        if self.how not in (SCALE, RANGE):
            raise ValueError(f"how {self.how!r}: one of {SCALE}, {RANGE}")

    @torch.no_grad()
    def call(self, process: Launched, step: int | None, number: int, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        if number:
            return None
        # A probe may run on the script's own batch instead of the recorded one: its values tell where it is from.
        early = step is not None and step < self.step and process.role == "train"
        places = itertools.count()

        def one(value: Tensor) -> Tensor:
            place = next(places)
            if not value.is_floating_point() or value.dim() < 2 or value.grad_fn is not None or not value.numel():
                return value
            return self._learned(place, value) if early else self._changed(place, value)

        given = map_tensors((tuple(args), dict(kwargs)), one)
        return None if early else (given[0], given[1])

    def _learned(self, place: int, value: Tensor) -> Tensor:
        mean, spread = _statistics(value)
        others = _others(value)
        low, high = value.amin(others, keepdim=True), value.amax(others, keepdim=True)
        known = self._before.get(place)
        if known is not None and known.low.shape == low.shape:
            low, high = torch.minimum(low, known.low), torch.maximum(high, known.high)
        self._before[place] = _Before(low, high, mean, spread)
        return value

    def _changed(self, place: int, value: Tensor) -> Tensor:
        before = self._before.get(place)
        if before is None or before.low.dim() != value.dim() or _lies_within(value, before):
            return value
        self.touch()
        if self.how == RANGE:
            return torch.minimum(torch.maximum(value, before.low), before.high)
        mean, spread = self._now.setdefault(place, _statistics(value))
        return (value - mean) / spread * before.spread + before.mean


def _lies_within(value: Tensor, before: _Before) -> bool:
    room = ROOM * (before.high - before.low)
    return bool(((value >= before.low - room) & (value <= before.high + room)).all())


def _others(value: Tensor) -> list[int]:
    return [at for at in range(value.dim()) if at != feature_dimension(value)]


def _statistics(value: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each feature; 1 where a feature does not vary."""
    others = _others(value)
    spread = value.std(others, keepdim=True, correction=0)
    return value.mean(others, keepdim=True), torch.where(spread > 0, spread, torch.ones_like(spread))
