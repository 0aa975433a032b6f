"""Finds the update that broke a weight: the launched script computes its own steps while its updates are traced.

The bundle contains the weights with their NaN, so there is no earlier state to restore. Instead the relaunched script
must break them again. It runs up to the last steps before the incident; from there on every update is traced until one
leaves a non-finite weight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from steadytrain.capture.hooks.model_discovery import find_model, optimizer_parameters
from steadytrain.core.incident import Finding
from steadytrain.repro.trail import Trail, Wanted
from steadytrain.tracing.tensor_summary import kinds_of
from steadytrain.tracing.tracer import OperationTracer
from steadytrain.tracing.value_origins import Record

UPDATES_TRACED_MAX = 32
"""Number of traced updates before the incident. An optimizer's own count lags by the steps that a scaler skipped."""

METHOD = "the recorded command was launched again and its own updates were traced, in a new process"

Leave = Callable[[Finding, Record | None, Trail], None]


def look_at_updates(step: int, wanted: Wanted | None, leave: Leave) -> None:
    """Traces the updates before ``step``. Calls ``leave`` after the one that makes a weight non-finite.

    ``wanted`` says what a second launch must keep of that update.
    """
    Updates(step - UPDATES_TRACED_MAX, wanted, leave)


class Updates:
    """Hooks on every optimizer's step, for the life of the process."""

    def __init__(self, first: int, wanted: Wanted | None, leave: Leave) -> None:
        self._first = first
        self._wanted = wanted
        self._leave = leave
        self._counts: dict[int, int] = {}
        self._running: tuple[OperationTracer, Trail, list[torch.Tensor]] | None = None
        register_optimizer_step_pre_hook(self._begins)
        register_optimizer_step_post_hook(self._ends)

    def _begins(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        count = self._counts[id(optimizer)] = self._counts.get(id(optimizer), 0) + 1
        if count < self._first or self._running is not None:
            return
        parameters = optimizer_parameters([optimizer])
        if any(kinds_of(parameter) for parameter in parameters):
            return  # not broken by an update
        names = find_model(parameters).names
        trail = Trail(self._wanted)
        named = {names[id(parameter)]: parameter for parameter in parameters}
        tracer = OperationTracer(parameters=named, method=METHOD, observer=trail)
        self._running = (tracer.__enter__(), trail, parameters)

    def _ends(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if self._running is None:
            return
        (tracer, trail, parameters), self._running = self._running, None
        tracer.__exit__(None, None, None)
        for number, parameter in enumerate(parameters):
            if kinds_of(parameter):
                tracer.mark_target(f"weight {number} after its update", parameter)
                self._leave(tracer.finding(), tracer.culprit(), trail)
                return
