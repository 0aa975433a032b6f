"""A training that another library's trainer runs: when a watch starts and ends, and the trainer's own facts.

The run stores the facts as ``trainers``, one entry per training: its settings, the offset of its step numbers, and its
evaluations. Not here: any trainer. Each has its own file that uses this one.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from steadytrain import attach
from steadytrain.attach import Options
from steadytrain.core.switch import is_off

if TYPE_CHECKING:
    import torch

    from steadytrain.attach import Watch
    from steadytrain.attach.options import OptionsGiven

EVALUATIONS_MAX = 200
METRICS_MAX = 64
TEXT_MAX = 400


class Fit:
    """Consecutive trainings with one callback. Each has its own watch, or shares the open one.

    Args:
        trainer: the trainer's usual name.
        options: for :func:`steadytrain.watch`.

    Raises:
        UsageError: an option is of the wrong kind.
    """

    def __init__(self, trainer: str, options: OptionsGiven) -> None:
        if not is_off():
            Options(**options)
        self._trainer = trainer
        self._options = options
        self._watch: Watch | None = None
        self._before: dict[str, int] = {}
        self._fact: dict[str, Any] = {}
        self._past: list[dict[str, Any]] = []

    @property
    def watch(self) -> Watch | None:
        """The open watch, None between trainings."""
        return self._watch

    @property
    def ledger(self) -> list[dict[str, Any]]:
        """What steadytrain did to the run, for the metadata of a checkpoint; empty for a run that it did not touch."""
        actions = self._watch.actions if self._watch is not None else ()
        return [action.to_json() for action in actions if action.touched]

    @property
    def options(self) -> dict[str, Any]:
        """The options that JSON can hold."""
        return {name: value for name, value in self._options.items() if isinstance(value, (str, int, float))}

    def begin(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
        """Start a watch. A watch that an interrupted training left open ends first."""
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
        """Record the trainer's settings, and its step count at the start of this training (above 0 after a resume).

        ``planned_steps`` is the trainer's last step, by that count. A second training in one watch, or a resumed one,
        makes another number of steps here, so the run then gets no such fact.
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
        """Call after each step. The first call records the offset between our step numbers and the trainer's."""
        if self._watch is None or "stream" in self._fact:
            return
        for stream, step in self._watch.steps.items():
            if step > self._before.get(stream, 0):
                self._fact |= {"stream": stream, "global_step_minus_step": global_step - step}
                self._write()
                return

    def evaluated(self, global_step: int, metrics: Mapping[str, Any]) -> None:
        """Record an evaluation of the trainer after this step."""
        plain = {name: _plain(value) for name, value in list(metrics.items())[:METRICS_MAX]}
        evaluations = [*self._fact.get("evaluations", []), {"global_step": global_step, "metrics": plain}]
        self._fact["evaluations"] = evaluations[-EVALUATIONS_MAX:]
        if self._watch is not None:
            self._watch.evaluated({name: value for name, value in plain.items() if type(value) in (int, float)})
        self._write()

    def end(self, error: BaseException | None = None) -> None:
        """End the watch and remove its hooks, unless the watch is borrowed.

        Raises:
            RunStopped: an update was refused, and the trainer ended before the error could be raised in it.
        """
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.__exit__(None if error is None else type(error), error, None)

    def _write(self) -> None:
        if self._watch is not None:
            self._watch.set_fact("trainers", self._past)


def _plain(value: Any) -> Any:
    """A configuration value as JSON."""
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
