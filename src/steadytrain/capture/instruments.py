"""What is measured of a stream of steps beside the gate's own look, and in which steps.

The level gives the cadences; near a symptom everything is measured in every step, within a bound. Measurements are
made on the device and read when they have arrived: at once on the CPU, a step later on a GPU. Not here: how a tensor is
measured (``tensorstats``), and where readings go (``books``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from steadytrain.capture.failopen import Guard
from steadytrain.capture.tensorstats import Readback, TensorWatch, log2_histogram
from steadytrain.levels import NEAR_STEPS, NEAR_STEPS_SHARE_MAX, Level
from steadytrain.model import Reading, Symptom

if TYPE_CHECKING:
    from steadytrain.capture.streams import Stream

WAITING_MAX = 64
"""Readings on their way from a device; the oldest are let go."""

Record = Callable[[int, Reading], None]
Note = Callable[[str], None]


class Instruments:
    """Of one stream. ``begin`` comes when a step begins to form, ``before_update`` at the gate, ``after_update`` after.

    Args:
        level: the cadences.
        record: takes a reading and its step.
        note: tells the user something once.
    """

    def __init__(self, level: Level, guard: Guard, record: Record, note: Note) -> None:
        self._level = level
        self._guard = guard
        self._record = record
        self._note = note
        self._tensors: TensorWatch | None = None
        self._measured: tuple[int, ...] = ()
        self._looked_before = False
        self._waiting: list[tuple[int, Readback[Reading]]] = []
        self._near_until = 0
        self._near_steps = 0
        self._known: set[tuple[str, int]] = set()

    @property
    def held_bytes(self) -> int:
        """Memory that stays in use between readings."""
        return self._tensors.held_bytes if self._tensors is not None else 0

    def weighs(self, step: int) -> bool:
        """Whether the gate takes the norm of the weights, and what has underflowed, in ``step``."""
        return step == 1 or step % self._level.weights_every == 0 or self._is_near(step)

    def before_update(self, stream: Stream, step: int, scale: float) -> None:
        """At the gate of ``step``, whose gradients are ``scale`` times too large."""
        self._looked_before = False
        if not self._is_due(self._level.tensors_every, step):
            return
        with self._guard.part("measuring tensors"):
            self._watch(stream).before_update(scale=scale)
            self._looked_before = True

    def after_update(self, stream: Stream, step: int) -> None:
        """The optimizer has stepped."""
        if self._looked_before:
            self._looked_before = False
            with self._guard.part("measuring tensors"):
                watch = self._watch(stream)
                self._send(step, watch.after_update(stream.optimizers))
                for note in watch.take_notes():
                    self._note(note)
        if self._is_due(self._level.histograms_every, step, near=False):
            with self._guard.part("measuring histograms"):
                self._send(step, log2_histogram(_histogram_rows(stream.tensor_names, stream.parameters)))
        if self._is_near(step) and self._near_until:
            self._near_steps += 1
        self.read()

    def skip_update(self) -> None:
        """The update did not come."""
        if self._looked_before and self._tensors is not None:
            self._tensors.forget()
        self._looked_before = False

    def read(self) -> None:
        """Record what has arrived."""
        arrived = [entry for entry in self._waiting if entry[1].ready()]
        self._waiting = [entry for entry in self._waiting if entry not in arrived]
        for step, readback in arrived:
            with self._guard.part("recording a reading"):
                self._record(step, readback.result())

    def finish(self) -> None:
        """The run is over: record what is still on its way."""
        waiting, self._waiting = self._waiting, []
        for step, readback in waiting:
            with self._guard.part("recording a reading"):
                self._record(step, readback.result())

    def raised(self, symptoms: Sequence[Symptom], step: int) -> None:
        """Symptoms as they stand: one that was not there before makes the next steps be measured whole."""
        new = {(symptom.name, symptom.first_step) for symptom in symptoms if symptom.severity != "note"} - self._known
        if new:
            self._known |= new
            self._near_until = step + NEAR_STEPS

    def _is_near(self, step: int) -> bool:
        return step <= self._near_until and self._near_steps <= NEAR_STEPS + NEAR_STEPS_SHARE_MAX * step

    def _is_due(self, every: int | None, step: int, *, near: bool = True) -> bool:
        return every is not None and (step == 1 or step % every == 0 or (near and self._is_near(step)))

    def _watch(self, stream: Stream) -> TensorWatch:
        if self._tensors is None or stream.signature != self._measured:
            self._tensors = TensorWatch(stream.tensor_names, stream.parameters)
            self._measured = stream.signature
        return self._tensors

    def _send(self, step: int, readback: Readback[Reading]) -> None:
        self._waiting = [*self._waiting[-WAITING_MAX + 1 :], (step, readback)]


def _histogram_rows(names: Sequence[str], parameters: Sequence[Tensor]) -> list[tuple[str, Tensor]]:
    gradients = [
        (f"gradient:{name}", parameter.grad)
        for name, parameter in zip(names, parameters, strict=True)
        if parameter.grad is not None
    ]
    return [*gradients, *((f"weight:{name}", parameter) for name, parameter in zip(names, parameters, strict=True))]
