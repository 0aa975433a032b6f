"""The batches that a loop gives to its step function, where ``watch(..., step_fn=f)`` names one.

``f(model, batch) -> loss`` is what a replay calls where the loop itself cannot be launched again. Its batch is taken
from the running call of ``f`` at the moment when the model is called, so ``f`` itself is left as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from steadytrain.capture.hooks.patches import MISSING
from steadytrain.capture.step.script_frames import assigned_names
from steadytrain.core.errors import UsageError

STEP_BATCHES = -1
"""The number of the data set under which they stand on the tape; those of data loaders count from 0."""

FRAMES_MAX = 64


class StepBatches:
    """Finds the batch of the running call. One call gives its batch once, however often it calls the model.

    Raises:
        UsageError: on construction: the function does not take a model and a batch, or gives ``batch`` another value.
    """

    def __init__(self, step_fn: Callable[..., Any]) -> None:
        code = getattr(step_fn, "__code__", None)
        if not isinstance(code, CodeType) or code.co_argcount < 2:
            raise UsageError(f"step_fn: a plain function of a model and a batch is wanted, got {step_fn!r}")
        self._code = code
        self._name = code.co_varnames[1]
        if self._name in assigned_names(code):
            raise UsageError(
                f"step_fn: {code.co_name} gives {self._name!r} another value, so it cannot be recorded what it was "
                "called with; use another name for that"
            )
        self._given: int | None = None

    def is_of(self, other: StepBatches) -> bool:
        """Whether both follow the same function."""
        return self._code is other._code

    def take(self) -> Any:
        """The batch of a call that has not given it yet, ``MISSING`` elsewhere."""
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
        """The next call is another one, though its frame may lie where the last one did."""
        self._given = None
