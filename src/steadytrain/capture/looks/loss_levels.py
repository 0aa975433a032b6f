"""Remembers the last losses of a training, for one of a model of the same shapes that begins after it in the process: a
resume, whose loss goes on where the other one ended, or a training of its own. Where an optimizer was given its state
and there was no such training, the losses are those of the newest earlier run of the same command.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from steadytrain.capture.looks.counted_steps import updates_of
from steadytrain.capture.settings import Settings
from steadytrain.capture.snapshots.resumed_states import ResumedStates
from steadytrain.capture.step.gate import Measurement
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.core.errors import UsageError
from steadytrain.core.own_errors import own
from steadytrain.statistics.reference import MAD_TO_SIGMA
from steadytrain.storage.earlier_run import newest_before

LAST_STEPS, ENDED_MAX = 32, 4
STEPS_READ_MAX = 1_000_000
"""Steps of an earlier run that are read at most: 0.2 s."""


@dataclass
class LossLevels:
    """The last losses of one stream and the shapes of its parameters. A step costs an append."""

    losses: deque[float] = field(default_factory=lambda: deque(maxlen=LAST_STEPS))
    shapes: tuple[tuple[int, ...], ...] = ()
    updates: float = 0.0
    """Updates behind it, those before a resume among them."""


class _HasLevels(Protocol):
    levels: LossLevels


class TrainingLevels:
    """The levels of trainings that ended, the newest last."""

    def __init__(self, settings: Settings, resumed: ResumedStates) -> None:
        self._settings, self._resumed = settings, resumed
        self._ended: deque[LossLevels] = deque(maxlen=ENDED_MAX)

    def ended(self, levels: LossLevels) -> None:
        self._ended.append(levels)

    def rows(
        self, own: LossLevels, stream: Stream, measured: Measurement, others: Iterable[_HasLevels]
    ) -> Iterator[tuple[str, float]]:
        """At the gate of ``stream``. Before its first update ``level-before:STREAM`` and ``spread-before:STREAM``:
        median and robust standard deviation of the last 32 losses of the newest training whose parameters have the same
        shapes, or of the run before. ``updates-before:STREAM`` is how many updates it had behind it then.
        """
        if stream.own_steps == 0:
            own.shapes = tuple(tuple(one.shape) for one in stream.parameters)
            earlier = [*self._ended, *(one.levels for one in others)]
            alike = [one for one in earlier if one is not own and one.shapes == own.shapes]
            own.updates = max(map(updates_of, stream.optimizers), default=0.0)
            before = alike[-1] if alike else self._of_run_before(stream)
            known = before.losses
            if len(known) == LAST_STEPS:
                yield f"updates-before:{stream.name}", before.updates
                level = statistics.median(known)
                spread = MAD_TO_SIGMA * statistics.median(abs(one - level) for one in known)
                yield f"level-before:{stream.name}", level
                yield f"spread-before:{stream.name}", spread
        loss = measured.record.scalars.get("loss")
        if loss is not None and math.isfinite(loss):
            own.losses.append(loss)
        own.updates += 1.0

    def _of_run_before(self, stream: Stream) -> LossLevels:
        """The last losses of the newest earlier run of the same command, if this run loaded the optimizer's state."""
        settings = self._settings
        if not any(map(self._resumed.times_given, stream.optimizers)) or not settings.description.get("argv"):
            return LossLevels()
        run = newest_before(settings.run_dir, settings.description)
        try:
            if run is None or stream.name not in run.streams() or run.steps > STEPS_READ_MAX:
                return LossLevels()
            losses = run.scalars(stream.name).series("loss")
        except own(OSError, UsageError):
            return LossLevels()
        last = deque(map(float, losses.values), maxlen=LAST_STEPS)
        return LossLevels(last, updates=float(losses.steps[-1]) if len(losses) else 0.0)
