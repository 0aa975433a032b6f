"""Replays without the recorded script: one function builds model and optimizer, another computes the loss.

For loops that cannot be launched again (a notebook, a service). ``build()`` returns the model and the optimizer. It may
return a third value: a function that replaces ``optimizer.step()``, for example to clip gradients first.
``step_fn(model, batch)`` returns the loss. This module supplies the loop, under the same observer as the replay of a
script. The batches are those that the run passed to its step function (``watch(..., step_fn=f)``).

Run as ``python -m steadytrain.replay.from_functions SOURCE RESULT.json FROM|- UNTIL|- STEP|- STEP_FN BUILD``.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.settings import Settings
from steadytrain.capture.step.step_batches import STEP_BATCHES
from steadytrain.capture.step.watcher import Watcher
from steadytrain.core.errors import UsageError
from steadytrain.core.levels import LEVELS
from steadytrain.detection.run_recorder import recording
from steadytrain.replay.command_runner import as_program, leave, tell
from steadytrain.replay.engine import Replayer
from steadytrain.replay.file_sandbox import protect_files
from steadytrain.replay.from_script import NOT_GIVEN, open_source
from steadytrain.replay.moved_files import NOT_MOVED, Moved
from steadytrain.replay.own_steps import OwnSteps
from steadytrain.replay.recorded_steps import RecordedSteps
from steadytrain.replay.result_files import write_output
from steadytrain.replay.step_trace import StepTrace
from steadytrain.replay.verdict import Replayed
from steadytrain.storage.tree import Opaque


def main(source: str, result: str, first: str, until: str, trace: str, step_fn: str, build: str) -> int:
    opened = open_source(Path(source), Moved.parse(NOT_MOVED))
    steps = [None if text == NOT_GIVEN else int(text) for text in (first, until, trace)]
    snapshot, last = opened.recording.choose(first=steps[0], until=steps[1] or opened.incident_step)
    for folder in (os.path.dirname(str(opened.environment.get("script") or "")), os.getcwd()):
        sys.path.insert(0, folder)
    protect_files(Path(result).parent)
    loss_of, built = named(step_fn), named(build)

    def done(outcome: Replayed | str, traced: StepTrace | None) -> None:
        write_output(Path(result), outcome, traced)
        leave()

    replayer = Replayer(
        opened.recording,
        snapshot=snapshot,
        until=last,
        own_steps=OwnSteps(1, skips=snapshot.step > 1),
        final=None,
        done=done,
        trace_step=steps[2],
    )
    Guard.reraise = True
    unused = Path(result).parent / "unused"
    settings = Settings(run_dir=unused, run_name="replay", policy="observe", level=LEVELS["light"])
    watcher = Watcher(settings, tell=tell, record=recording(), observer=replayer)
    model, optimizer, *more = built()
    if not isinstance(model, torch.nn.Module) or not isinstance(optimizer, torch.optim.Optimizer):
        raise UsageError(f"{build}: must return a model and an optimizer, got {type(model)} and {type(optimizer)}")
    watcher.watch_model(model, optimizer)
    update = more[0] if more else optimizer.step
    # One extra step first, for the step that a launched script would compute itself.
    for step in (snapshot.step + 1, *range(snapshot.step + 1, last + 1)):
        for batch in batches(RecordedSteps(opened.recording), step):
            loss = loss_of(model, batch)
            loss.backward()
        update()
        optimizer.zero_grad()
    return 1


def batches(recorded: RecordedSteps, number: int) -> list[Any]:
    """The batches that the step function got in step ``number``.

    Raises:
        UsageError: they are not on the tape.
    """
    step = recorded.step(number)
    fetches = [fetch for fetch in step.document["fetches"] if fetch["dataset"] == STEP_BATCHES] if step else []
    if step is None or not fetches:
        raise UsageError(f"step {number}: no batch of a step function on the tape; watch(..., step_fn=f) records them")
    lost = [name for fetch in fetches for name in fetch["not_kept"]]
    if lost:
        raise UsageError(f"step {number}: its batch contains {lost[0]}, which is not on the tape")
    values = [step.value(fetch["batch"]) for fetch in fetches]
    assert not any(isinstance(value, Opaque) for value in values)
    return values


def named(text: str) -> Callable[..., Any]:
    """The function that ``module:name`` names.

    Raises:
        UsageError: no such function exists.
    """
    module, separator, name = text.partition(":")
    if not separator or not module or not name:
        raise UsageError(f"{text!r}: must be module:function")
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
    as_program(main)
