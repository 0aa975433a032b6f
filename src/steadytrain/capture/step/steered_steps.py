"""Tells the steering of a run that a step begins, before the step is recorded."""

from __future__ import annotations

from typing import Any

from torch import nn

from steadytrain.capture.step.input_recorder import MicroBatch
from steadytrain.capture.step.live_run import LiveRun
from steadytrain.capture.step.observers import StepObserver


class SteeredSteps(StepObserver):
    """A guest that is called before the observer that records."""

    def __init__(self, run: LiveRun) -> None:
        self._run = run

    def call_begins(self, module: nn.Module, call: MicroBatch, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        with self._run.guard.part("steering between two steps"):
            self._run.steering.call_begins(module)
        return None
