"""Where a survey's steps come from: a replay of the recorded ones, or the script alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from steadytrain.capture.step.input_recorder import MicroBatch
from steadytrain.capture.step.observers import StepObserver
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.replay.engine import Replayer
from steadytrain.replay.own_steps import OwnSteps
from steadytrain.replay.state_restore import restore_groups
from steadytrain.replay.verdict import Replayed as Outcome
from steadytrain.storage.tape_files import Recording, Snapshot
from steadytrain.survey.kept_start import KeptStart

FIRST_STEPS, LAST_STEPS, AROUND_ONSET = 12, 12, 3
"""The surveyed steps: the script's first, those before the last, and those around the onset."""

ALONE_S_MAX = 60.0
"""Time limit in seconds without a replay. The survey ends after the step that exceeds it."""


class Alone(StepObserver):
    """Replays nothing: the script computes its own steps."""

    replays, from_start = True, True

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self._steps = 0
        self._began = time.monotonic()
        self.finished: Callable[[Outcome | str], None] | None = None

    @property
    def now(self) -> int:
        """The number of the current step."""
        return self._steps + 1

    @property
    def is_late(self) -> bool:
        """Whether the time limit is over."""
        return self._steps >= FIRST_STEPS and time.monotonic() - self._began > ALONE_S_MAX

    def step_ended(self, stream: Stream, folder: Path | None) -> None:
        self._steps += stream.name == self.stream


class ReplayedSteps(Replayer):
    """A replay that knows its current step. ``kept`` keeps a state on the way."""

    def __init__(
        self,
        recording: Recording,
        *,
        snapshot: Snapshot,
        until: int,
        own_steps: OwnSteps,
        kept: KeptStart | None = None,
    ) -> None:
        super().__init__(
            recording, snapshot=snapshot, until=until, own_steps=own_steps, final=None, done=self._over, trace_step=None
        )
        self.finished: Callable[[Outcome | str], None] | None = None
        self._kept = kept

    def call_begins(self, module: nn.Module, call: MicroBatch, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        if self._kept is not None and self._jumped and self._stream is not None and not self._others.streams:
            self._kept.call_begins(self._now, self._stream, self.scalers.values())
        return super().call_begins(module, call, args, kwargs)

    @property
    def now(self) -> int:
        """The number of the current step."""
        return self._now if self._jumped else self._own_steps + 1

    def restore_settings(self, stream: Stream) -> None:
        """Sets the learning rate and its like to the values at the gate of the recorded step. The script's schedule has
        not counted the steps that were left out."""
        step = self._steps.step(self._now) if self._jumped else None
        if step is not None:
            restore_groups(step.value(step.document["groups"]), stream)

    def _over(self, outcome: Outcome | str, trace: object) -> None:
        assert self.finished is not None
        self.finished(outcome)
