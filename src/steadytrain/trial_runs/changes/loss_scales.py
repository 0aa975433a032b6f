"""A loss scale that adapts, in a script that fixed it."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor

from steadytrain.core.torch_private import SCALE
from steadytrain.trial_runs.changes import LiveChange, at_least, more_than
from steadytrain.trial_runs.launched_script import Launched

Settings = tuple[float, float, int]
"""Growth factor, backoff factor, growth interval of a gradient scaler."""


@final
@dataclass
class DynamicLossScale(LiveChange):
    """Every gradient scaler adapts its scale: times ``backoff`` after an overflow, times ``growth`` after ``interval``
    steps without one.

    ``scale`` is set once; 0 keeps that of the script. A scaler is known once it has scaled a loss. Its state stays
    valid for a checkpoint, which then holds these settings.
    """

    scale: float = 0.0
    growth: float = 2.0
    backoff: float = 0.5
    interval: int = 2000
    nothing = "there is no enabled gradient scaler"
    _before: list[tuple[weakref.ref[Any], Settings]] = field(default_factory=list, init=False, repr=False)

    def check(self) -> None:
        at_least("scale", self.scale, 0.0)
        more_than("growth", self.growth, 1.0)
        at_least("interval", self.interval, 1)
        if not 0.0 < self.backoff < 1.0:
            raise ValueError(f"backoff {self.backoff}: must lie between 0 and 1")

    def begin(self, process: Launched) -> None:
        known = [scaler for held, _ in self._before if (scaler := held()) is not None]
        for scaler in process.scalers.values():
            if scaler.is_enabled() and not any(one is scaler for one in known):
                self._change(scaler)

    step_begins = begin

    def _change(self, scaler: Any) -> None:
        settings = (scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval())
        self._before.append((weakref.ref(scaler), settings))
        _set(scaler, (self.growth, self.backoff, self.interval))
        scale: Any = SCALE.of(scaler)
        if self.scale and isinstance(scale, Tensor):
            with torch.no_grad():
                scale.fill_(self.scale)
        self.touch()

    def end(self, process: Launched) -> None:
        """The scale stays where it is: an older one may be the one that overflowed."""
        for held, settings in self._before:
            scaler = held()
            if scaler is not None:
                _set(scaler, settings)
        self._before.clear()


def _set(scaler: Any, settings: Settings) -> None:
    growth, backoff, interval = settings
    scaler.set_growth_factor(growth)
    scaler.set_backoff_factor(backoff)
    scaler.set_growth_interval(interval)
