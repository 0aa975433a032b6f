"""Reads the batches that a loop passes to its step function, if ``watch(..., step_fn=f)`` names one.

A replay calls ``f(model, batch) -> loss`` if the loop itself cannot be launched again. When the model is called, the
batch is read from the frame of the running call of ``f``. So ``f`` is not replaced.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from steadytrain.capture.hooks.guarded_events import MISSING
from steadytrain.capture.step.script_frames import assigned_names
from steadytrain.core.errors import UsageError

STEP_BATCHES = -1
"""The data set number of these batches on the tape; data loaders count from 0."""

FRAMES_MAX = 64


class StepBatches:
    """Finds the batch of the running call. Each call yields its batch once, even if it calls the model several times.

    Raises:
        UsageError: on construction, if the function does not take a model and a batch, or reassigns ``batch``.
    """

    def __init__(self, step_fn: Callable[..., Any]) -> None:
        code = getattr(step_fn, "__code__", None)
        if not isinstance(code, CodeType) or code.co_argcount < 2:
            raise UsageError(f"step_fn: expected a plain function of a model and a batch, got {step_fn!r}")
        self._code = code
        self._name = code.co_varnames[1]
        if self._name in assigned_names(code):
            raise UsageError(
                f"step_fn: {code.co_name} reassigns {self._name!r}, so its argument cannot be recorded; use another "
                "name for the new value"
            )
        self._given: int | None = None

    def is_of(self, other: StepBatches) -> bool:
        """Whether both follow the same function."""
        return self._code is other._code

    def take(self) -> Any:
        """The batch of the running call on the first request, else ``MISSING``."""
        frame: FrameType | None = sys._getframe(1)
        for _ in range(FRAMES_MAX):
            if frame is None:
                return MISSING
            if frame.f_code is self._code:
                if self._given == id(frame):
                    return MISSING
                self._given = id(frame)
                return frame.f_locals[self._name]
            frame = frame.f_back
        return MISSING

    def backward_begins(self) -> None:
        """The next call is a new one, even if its frame has the same address."""
        self._given = None
