"""A training that somebody else's trainer runs: when a watch begins and ends, and the trainer's own facts of it.

The run stores the facts as ``trainers``, one entry per training: its settings, the mapping of its step numbers to ours,
and its evaluations. Not here: any trainer. Each has its own file that calls these.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from steadytrain import attach
from steadytrain.attach import Options

if TYPE_CHECKING:
    import torch

    from steadytrain.attach import Watch
    from steadytrain.attach.options import OptionsGiven

EVALUATIONS_MAX = 200
METRICS_MAX = 64
TEXT_MAX = 400


class Fit:
    """Consecutive trainings with one callback; each has its own watch, or shares the open one.

    Args:
        trainer: whose training it is, as people call it.
        options: for :func:`steadytrain.watch`.

    Raises:
        UsageError: an option is of the wrong kind.
    """

    def __init__(self, trainer: str, options: OptionsGiven) -> None:
        Options(**options)
        self._trainer = trainer
        self._options = options
        self._watch: Watch | None = None
        self._before: dict[str, int] = {}
        self._fact: dict[str, Any] = {}
        self._past: list[dict[str, Any]] = []

    @property
    def watch(self) -> Watch | None:
        """The watch that is open, None between trainings."""
        return self._watch

    def begin(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
        """Attach. A watch that an interrupted training left open ends first."""
        self.end()
        self._watch = attach.watch(model, optimizer, **self._options)
        self._before = self._watch.steps
        self._fact = {}

    def describe(
        self,
        settings: Mapping[str, Any],
        *,
        global_step: int,
        planned_steps: float | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        """The trainer's settings, and its own count of steps when this training began: more than 0 is a resume.

        ``planned_steps`` is where the trainer means to end, by that count. A second training in one watch, or one that
        goes on from a checkpoint, makes another number of steps here, so then it is not told as a fact of the run.
        """
        plans = planned_steps is not None and 0 < planned_steps < float("inf")
        if plans and not global_step and not self._before and self._watch is not None:
            self._watch.set_fact("planned_steps", int(planned_steps or 0))
        self._fact = {
            "trainer": self._trainer,
            "global_step_at_begin": global_step,
            "settings": {str(name): _plain(value) for name, value in settings.items()},
            "notes": list(notes),
        }
        self._past.append(self._fact)
        self._write()

    def stepped(self, global_step: int) -> None:
        """After a step: the first one gives the mapping between our step numbers and theirs."""
        if self._watch is None or "stream" in self._fact:
            return
        for stream, step in self._watch.steps.items():
            if step > self._before.get(stream, 0):
                self._fact |= {"stream": stream, "global_step_minus_step": global_step - step}
                self._write()
                return

    def evaluated(self, global_step: int, metrics: Mapping[str, Any]) -> None:
        """The trainer has evaluated after this step."""
        plain = {name: _plain(value) for name, value in list(metrics.items())[:METRICS_MAX]}
        evaluations = [*self._fact.get("evaluations", []), {"global_step": global_step, "metrics": plain}]
        self._fact["evaluations"] = evaluations[-EVALUATIONS_MAX:]
        if self._watch is not None:
            self._watch.evaluated({name: value for name, value in plain.items() if type(value) in (int, float)})
        self._write()

    def end(self, error: BaseException | None = None) -> None:
        """Take every hook out, unless the watch is borrowed.

        Raises:
            RunStopped: an update was refused, and the trainer ended before that could be raised in it.
        """
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.__exit__(None if error is None else type(error), error, None)

    def _write(self) -> None:
        if self._watch is not None:
            self._watch.set_fact("trainers", self._past)


def _plain(value: Any) -> Any:
    """A value of somebody's configuration as JSON has it."""
    if value is None or isinstance(value, (bool, str)):
        return value[:TEXT_MAX] if isinstance(value, str) else value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real) or (hasattr(value, "item") and getattr(value, "size", None) == 1):
        number = float(value)
        return number if abs(number) < float("inf") else str(number)
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in list(value.items())[:METRICS_MAX]}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value[:METRICS_MAX]]
    return str(value)[:TEXT_MAX]
