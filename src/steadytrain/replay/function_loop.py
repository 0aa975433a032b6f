"""The training loop of two functions, in place of one that cannot be launched again (a notebook, a service).

``build()`` returns the model and the optimizer. It may return a third value: a function that replaces
``optimizer.step()``, for example to clip gradients first. ``step_fn(model, batch)`` returns the loss. The batches are
those that the run passed to its step function (``watch(..., step_fn=f)``), from the tape. A replay feeds the batch of
each recorded step; steps beyond the tape, which it overwrites or refuses, get the nearest one.

Run as ``python -m steadytrain.replay.function_loop STEP_FN BUILD`` by the programs that run a recorded command again.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from itertools import count
from typing import Any

import torch

from steadytrain.capture.step import watcher as watchers
from steadytrain.capture.step.step_batches import STEP_BATCHES
from steadytrain.core.errors import UsageError
from steadytrain.replay import command_runner
from steadytrain.replay.recorded_steps import RecordedStep, RecordedSteps
from steadytrain.storage.tape_files import Recording, find_recording
from steadytrain.storage.tree import Opaque


def main(step_fn: str, build: str) -> int:
    source, watcher = command_runner.source_path, watchers.launched
    if source is None or watcher is None:
        raise UsageError("this module is the loop of a replay: `steadytrain replay --step-fn --build` runs it")
    loss_of, built = named(step_fn), named(build)
    model, optimizer, *more = built()
    if not isinstance(model, torch.nn.Module) or not isinstance(optimizer, torch.optim.Optimizer):
        raise UsageError(f"{build}: must return a model and an optimizer, got {type(model)} and {type(optimizer)}")
    watcher.watch_model(model, optimizer)
    update = more[0] if more else optimizer.step
    tape = StepTape(find_recording(source))
    for number in count(1):
        fed = not watcher.observer.from_start
        if number > tape.last and not fed:
            break
        for batch in tape.batches(tape.nearest(number) if fed else number):
            loss_of(model, watcher.step_batch(batch)).backward()
        update()
        optimizer.zero_grad()
    return 0


class StepTape:
    """The batches of a step function on the tape of a recording."""

    def __init__(self, recording: Recording) -> None:
        self._steps = RecordedSteps(recording)
        numbers = [number for chunk in recording.chunks for number in range(chunk.first, chunk.last + 1)]
        self._whole = [number for number in sorted(set(numbers)) if self._has(number)]
        if not self._whole:
            raise UsageError(
                f"{recording.folder}: no batch of a step function is on its tape; watch(..., step_fn=f) records them"
            )

    @property
    def last(self) -> int:
        return self._whole[-1]

    def nearest(self, number: int) -> int:
        """The step on the tape with batches that is ``number`` or comes next, else the last one."""
        return next((one for one in self._whole if one >= number), self.last)

    def batches(self, number: int) -> list[Any]:
        """The batches that the step function got in step ``number``.

        Raises:
            UsageError: they are not on the tape.
        """
        step = self._steps.step(number)
        fetches = _fetches(step) if step is not None else []
        if step is None or not fetches:
            raise UsageError(f"step {number}: no batch of a step function is on the tape")
        lost = [name for fetch in fetches for name in fetch["not_kept"]]
        if lost:
            raise UsageError(f"step {number}: its batch contains {lost[0]}, which is not on the tape")
        values = [step.value(fetch["batch"]) for fetch in fetches]
        assert not any(isinstance(value, Opaque) for value in values)
        return values

    def _has(self, number: int) -> bool:
        step = self._steps.step(number)
        return step is not None and bool(_fetches(step))


def _fetches(step: RecordedStep) -> list[dict[str, Any]]:
    return [fetch for fetch in step.document["fetches"] if fetch["dataset"] == STEP_BATCHES]


def named(text: str) -> Callable[..., Any]:
    """The function that ``module:name`` names.

    Raises:
        UsageError: no such function exists.
    """
    module, _, name = text.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{text}: not found ({error})") from None
    if not callable(found):
        raise UsageError(f"{text}: not a function")
    return found  # type: ignore[no-any-return]


if __name__ == "__main__":
    command_runner.as_program(main)
