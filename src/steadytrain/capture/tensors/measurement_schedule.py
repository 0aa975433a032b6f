"""Decides which measurements of a stream, in addition to the gate, happen in which steps.

The level sets the intervals. In the first steps, and after a resume or a loaded state, tensors and modules are measured
more often, and then less often while the run is healthy. After a hint they are measured more often for a while. After a
symptom everything is measured in each of the next 16 steps, and then in every fourth. All this is bounded. Measurements
run on the device and are read when the numbers have arrived: at once on the CPU, a step later on a GPU. Not here: how a
tensor is measured (``statistics``), and where readings go (``run_recorder``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.tensors.activations import SILENT_SLOTS, Activations, Taken
from steadytrain.capture.tensors.statistics import Readback, TensorWatch, log2_histogram
from steadytrain.core.levels import (
    EXTRA_SHARE_MAX,
    EXTRA_STEPS,
    HINT_EVERY,
    HINT_STEPS,
    NEAR_STEPS,
    NEAR_STEPS_SHARE_MAX,
    NEAR_WHOLE,
    YOUNG,
    Level,
)
from steadytrain.core.model import Reading, Symptom
from steadytrain.statistics.gradient_shares import BEFORE_ROWS, NOW_ROWS, left_the_others

if TYPE_CHECKING:
    from steadytrain.capture.step.optimizer_streams import Stream

RATE_RATIO = 2.0
"""A learning rate that grows by this factor from one step to the next is a hint."""

SCRIPT_SIGNALS = {"script.value"}

WAITING_MAX = 64
"""Measurements in transfer from a device; more drop the oldest."""

Record = Callable[[int, Reading], None]
Note = Callable[[str], None]
Fact = Callable[[str, Any], None]


@dataclass(frozen=True)
class Underway:
    """The measurements of one step in transfer to the host."""

    step: int
    tensors: Readback[Reading] | None = None
    modules: Readback[Taken] | None = None
    histograms: Readback[Reading] | None = None

    @property
    def arrived(self) -> bool:
        return all(part is None or part.ready() for part in (self.tensors, self.modules, self.histograms))


class MeasurementSchedule:
    """Serves one stream: call ``before_update`` at the gate and ``after_update`` when the optimizer has stepped.

    Args:
        level: the intervals.
        activations: measures outputs of modules; None if another stream has them.
        record: receives a step and its reading.
        note: shows a note to the user once.
        fact: records a fact of the run.
        saw_logits: receives the number of classes of the logits.
    """

    def __init__(
        self,
        level: Level,
        activations: Activations | None,
        guard: Guard,
        record: Record,
        note: Note,
        fact: Fact,
        saw_logits: Callable[[int], None],
    ) -> None:
        self._level = level
        self._guard = guard
        self._record = record
        self._note = note
        self._fact = fact
        self._saw_logits = saw_logits
        self._activations = activations
        self._formats: dict[str, Any] = {}
        self._tensors: TensorWatch | None = None
        self._measured: tuple[int, ...] = ()
        self._looked_before = False
        self._waiting: list[Underway] = []
        self._near_until = 0
        self._near_steps = 0
        self._known: set[tuple[str, int]] = set()
        self._noted: set[tuple[str, int]] = set()
        self._young_since: int | None = None
        self._hint_until = 0
        self._extra_steps = 0
        self._norms: deque[NDArray[np.float32]] = deque(maxlen=BEFORE_ROWS + NOW_ROWS)
        self._rate: float | None = None
        self._whole_until = 0

    @property
    def held_bytes(self) -> int:
        """Memory that stays in use between readings."""
        return self._tensors.held_bytes if self._tensors is not None else 0

    def weighs(self, step: int) -> bool:
        """Whether the gate also measures the norm of the weights and the underflow in ``step``."""
        return self._is_due(self._level.weights_every, step, early=self._level.tensors_every is not None)

    def before_update(self, stream: Stream, step: int, scale: float) -> None:
        """Measure at the gate of ``step``. The gradients still carry the factor ``scale``."""
        self._looked_before = False
        if not self._is_due(self._level.tensors_every, step):
            return
        with self._guard.part("measuring tensors"):
            self._watch(stream).before_update(scale=scale)
            self._looked_before = True

    def after_update(self, stream: Stream, step: int) -> None:
        """Measure the update, and arm the measurement of the next step's outputs if it is due."""
        tensors = modules = histograms = None
        with_histograms = self._is_due(self._level.histograms_every, step, near=False)
        if self._looked_before:
            self._looked_before = False
            with self._guard.part("measuring tensors"):
                watch = self._watch(stream)
                tensors = watch.after_update(stream.optimizers)
                for note in watch.take_notes():
                    self._note(note)
        if with_histograms:
            with self._guard.part("measuring histograms"):
                histograms = log2_histogram(_histogram_rows(stream.tensor_names, stream.parameters), with_sign=True)
        if self._activations is not None:
            modules = self._take_outputs()
            self._arm(stream, step + 1)
        if tensors or modules or histograms:
            self._waiting = [*self._waiting[-WAITING_MAX + 1 :], Underway(step, tensors, modules, histograms)]
        if self._is_near(step) and self._near_until:
            self._near_steps += 1
        elif tensors and not self._is_due(self._level.tensors_every, step, early=False):
            self._extra_steps += 1
        self.read()

    def _take_outputs(self) -> Readback[Taken] | None:
        if self._activations is None or not self._activations.armed:
            return None
        taken = self._activations.take()
        for note in self._activations.take_notes():
            self._note(note)
        return taken

    def _arm(self, stream: Stream, step: int) -> None:
        assert self._activations is not None
        # Hooks can be added only between steps, so the second step is the first one with measured outputs.
        if (step == 2 and self._level.modules_every) or self._is_due(self._level.modules_every, step):
            histograms = self._is_due(self._level.histograms_every, step, near=False)
            self._activations.arm(list(stream.roots()), histograms=histograms)

    def skip_update(self, stream: Stream | None = None, step: int = 0) -> None:
        """The step had no update. ``stream``: it is on record as ``step`` of that stream, and so are its outputs."""
        if self._looked_before and self._tensors is not None:
            self._tensors.forget()
        self._looked_before = False
        if stream is not None and self._activations is not None:
            if (modules := self._take_outputs()) is not None:
                self._waiting = [*self._waiting[-WAITING_MAX + 1 :], Underway(step, modules=modules)]
            self._arm(stream, step + 1)
            self.read()

    def leave_out(self) -> None:
        """The script made no update with the batches since the last step: their outputs belong to no step."""
        if self._activations is not None:
            self._activations.leave_out()

    def at_incident(self, stream: Stream, step: int, scale: float) -> None:
        """The update was refused: measure gradients, weights and moments in their current state, and no update."""
        if self._level.tensors_every is None:
            return
        with self._guard.part("measuring tensors"):
            watch = self._watch(stream)
            watch.before_update(scale=scale)
            reading = watch.after_update(stream.optimizers).result()
            of_update = [column.startswith(("update", "unchanged")) for column in reading.columns]
            values = reading.values.copy()
            values[:, of_update] = np.nan
            self._looked_before = False
            self.finish()
            self._record(step, replace(reading, values=values))

    def read(self) -> None:
        """Record the measurements that have arrived, in order."""
        while self._waiting and self._waiting[0].arrived:
            self._read(self._waiting.pop(0))

    def finish(self) -> None:
        """The run is over: record the measurements still in transfer."""
        while self._waiting:
            self._read(self._waiting.pop(0))

    def release(self) -> None:
        """No step follows: record the measurements in transfer, and drop all tensors and modules of the model."""
        self.finish()
        self._tensors, self._measured = None, ()
        if self._activations is not None:
            self._activations.remove()

    def _read(self, underway: Underway) -> None:
        with self._guard.part("recording what was measured"):
            if underway.tensors is not None:
                self._record(underway.step, underway.tensors.result())
            taken = underway.modules.result() if underway.modules is not None else None
            histograms = underway.histograms.result() if underway.histograms is not None else None
            if taken is not None:
                self._record(underway.step, taken.modules)
                if taken.silent_slots:
                    self._note(SILENT_SLOTS)
                self._put_formats(taken)
                if taken.classes is not None:
                    self._saw_logits(taken.classes)
                histograms = _joined(histograms, taken.histograms)
            if histograms is not None:
                self._record(underway.step, histograms)

    def _put_formats(self, taken: Taken) -> None:
        formats = {"outputs": dict(taken.dtypes), "logits": taken.logits, "loss_input": taken.loss_input}
        if formats != self._formats:
            self._formats = formats
            self._fact("output_dtypes", formats)

    def raised(self, symptoms: Sequence[Symptom], step: int) -> None:
        """The current symptoms. After a new one the next steps are measured fully, after a new note more often.

        A symptom about what the script does changes nothing, because tensors show nothing more about it.
        """
        symptoms = [one for one in symptoms if set(one.signals) != SCRIPT_SIGNALS]
        new = {(symptom.name, symptom.first_step) for symptom in symptoms if symptom.severity != "note"} - self._known
        if new:
            self._known |= new
            self._near_until = step + NEAR_STEPS
        noted = {(symptom.name, symptom.first_step) for symptom in symptoms} - self._noted
        if noted:
            self._noted |= noted
            self._hint_until = step + HINT_STEPS

    def saw(self, step: int, gradient_norms: NDArray[np.float32], rate: float | None) -> None:
        """Look for hints in a step: a gradient norm that departs from the others, or a jump of the learning rate."""
        if self._level.tensors_every is None:
            return
        if self._young_since is None:
            self._young_since = step - 1  # a resume begins here
        if self._norms and len(self._norms[-1]) != len(gradient_norms):  # a new module
            self._norms.clear()
            self.renewed(step)
        self._norms.append(gradient_norms)
        jumped = rate is not None and self._rate is not None and 0.0 < RATE_RATIO * self._rate < rate
        self._rate = rate
        if step <= self._hint_until:
            return
        if jumped or (step % HINT_EVERY == 0 and left_the_others(np.stack(self._norms)) is not None):
            self._hint_until = step + HINT_STEPS

    def change_level(self, level: Level) -> None:
        """Measure at the intervals of ``level`` from here on."""
        self._level = level

    def measure_all(self, until: int) -> None:
        """Measure every step whole up to step ``until``."""
        self._whole_until = until

    def renewed(self, step: int) -> None:
        """Measure more often again, as in the first steps: a state was loaded, or modules are new."""
        self._young_since = step

    def _cadence(self, every: int, step: int) -> int:
        """The current interval in steps: the level's or, within a bound, a shorter one."""
        if self._extra_steps >= EXTRA_STEPS + EXTRA_SHARE_MAX * step:
            return every
        if step <= self._hint_until:
            return min(every, HINT_EVERY)
        age = step - (self._young_since or 0)
        return min([every, *(cadence for until, cadence in YOUNG if age <= until)])

    def _is_near(self, step: int) -> bool:
        if step > self._near_until or self._near_steps > NEAR_STEPS + NEAR_STEPS_SHARE_MAX * step:
            return False
        return step <= self._near_until - NEAR_STEPS + NEAR_WHOLE or step % HINT_EVERY == 0

    def _is_due(self, every: int | None, step: int, *, near: bool = True, early: bool = True) -> bool:
        if every is None:
            return False
        if near and early:
            every = self._cadence(every, step)
        return step == 1 or step % every == 0 or step <= self._whole_until or (near and self._is_near(step))

    def _watch(self, stream: Stream) -> TensorWatch:
        if self._tensors is None or stream.signature != self._measured:
            self._tensors = TensorWatch(stream.tensor_names, stream.parameters)
            self._measured = stream.signature
        return self._tensors


def _histogram_rows(names: Sequence[str], parameters: Sequence[Tensor]) -> list[tuple[str, Tensor]]:
    gradients = [
        (f"gradient:{name}", parameter.grad)
        for name, parameter in zip(names, parameters, strict=True)
        if parameter.grad is not None
    ]
    return [*gradients, *((f"weight:{name}", parameter) for name, parameter in zip(names, parameters, strict=True))]


def _joined(first: Reading | None, second: Reading | None) -> Reading | None:
    """Join two readings of one table at one step, to keep its rows the same from step to step."""
    if first is None or second is None:
        return first or second
    assert first.columns == second.columns
    values = np.concatenate([first.values, second.values])
    return Reading(first.table, (*first.rows, *second.rows), first.columns, values)
