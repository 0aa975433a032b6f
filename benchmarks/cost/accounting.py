"""Time inside our own entry points, part by part: far less noisy than the difference of two whole steps.

Entry points of the watcher are wrapped before it is made. A part is charged what it takes itself, without the parts it
calls, and without torch's own work that runs inside (the original ``clip_grad_norm_``).
"""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

TORCH = "torch"
PARTS = ("hooks", "clip", "gate", "looks", "tensors", "histograms", "modules", "recorder", "detectors")


class Accounting:
    """Installs itself; one in a process."""

    def __init__(self) -> None:
        self._steps: list[dict[str, list[float]]] = [defaultdict(lambda: [0.0, 0.0])]
        self._inside: list[list[float]] = []
        self._install()

    def by_step(self) -> list[dict[str, list[float]]]:
        """Of every step: part -> wall-clock and processor milliseconds of the training thread."""
        return [
            {part: [1000 * seconds for seconds in spent] for part, spent in step.items() if part != TORCH}
            for step in self._steps
            if step
        ]

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            self._inside.append([0.0, 0.0])
            wall, processor = time.perf_counter(), time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                processor, wall = time.thread_time() - processor, time.perf_counter() - wall
                inside = self._inside.pop()
                charged = self._steps[-1][part]
                charged[0] += wall - inside[0]
                charged[1] += processor - inside[1]
                if self._inside:
                    self._inside[-1][0] += wall
                    self._inside[-1][1] += processor

        return call

    def _install(self) -> None:
        from steadytrain.capture.hooks.clipping import Clipping
        from steadytrain.capture.looks.script_look import ScriptLook
        from steadytrain.capture.step import optimizer_steps
        from steadytrain.capture.step.gradient_events import GradientEvents
        from steadytrain.capture.step.model_calls import ModelCalls
        from steadytrain.capture.tensors import measurement_schedule
        from steadytrain.detection.run_recorder import RunRecorder

        for name in ("forward_begins", "forward_ends", "backward_begins", "backward_ends"):
            self._wrap(ModelCalls, name, "hooks")
        for name in ("step_begins", "step_ends"):
            self._wrap(optimizer_steps.OptimizerSteps, name, "hooks")
        self._wrap(GradientEvents, "gradients_zeroed", "hooks")
        for name in ("fetched", "call_begins", "loss_seen", "gate", "step_ended"):
            self._wrap(ScriptLook, name, "looks")
        self._wrap(optimizer_steps, "measure", "gate")
        self._wrap(Clipping, "_keep", "clip")
        self._wrap_clip(GradientEvents)
        for name in ("before_update", "after_update"):
            self._wrap(measurement_schedule.TensorWatch, name, "tensors")
        self._wrap(measurement_schedule.MeasurementSchedule, "read", "tensors")
        self._wrap(measurement_schedule, "log2_histogram", "histograms")
        for name in ("commit", "read"):
            self._wrap(RunRecorder, name, "recorder")
        self._wrap(RunRecorder, "detect", "detectors")
        self._wrap_modules()
        ends = GradientEvents.gradients_zeroed

        def next_step(*args: Any) -> Any:
            """Zeroing the gradients is the last of the script's step."""
            try:
                return ends(*args)
            finally:
                self._steps.append(defaultdict(lambda: [0.0, 0.0]))

        GradientEvents.gradients_zeroed = next_step  # type: ignore[method-assign]

    def _wrap(self, owner: Any, name: str, part: str) -> None:
        setattr(owner, name, self.timed(part, getattr(owner, name)))

    def _wrap_clip(self, owner: Any) -> None:
        ours = owner.clip

        def clip(events: Any, original: Callable[..., Any], *rest: Any) -> Any:
            return ours(events, self.timed(TORCH, original), *rest)

        owner.clip = self.timed("clip", clip)

    def _wrap_modules(self) -> None:
        from steadytrain.capture.tensors.activations import Activations

        for name in ("arm", "backward_begins", "take", "_call_begins", "_call_ends", "_function_called"):
            self._wrap(Activations, name, "modules")
