"""What the parts of a watcher share: the run, who follows it, and the step that forms. It decides nothing."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from steadytrain.capture.hooks.fail_open import Guard, Tell
from steadytrain.capture.hooks.hooked_modules import HookedModules
from steadytrain.capture.incident.context import LoopRerun
from steadytrain.capture.settings import Settings
from steadytrain.capture.step.input_recorder import BatchRing, BufferKeeper, MicroBatch
from steadytrain.capture.step.lap import Lap
from steadytrain.capture.step.observers import StepObserver
from steadytrain.capture.step.optimizer_streams import StepInProgress, Stream
from steadytrain.capture.step.own_time import OwnTime
from steadytrain.capture.step.recording import Record
from steadytrain.capture.step.run_stopped import RunStopped
from steadytrain.capture.step.sample_indices import DrawnSamples
from steadytrain.capture.step.stream_assignment import StreamAssignment
from steadytrain.capture.tensors.activations import Activations
from steadytrain.capture.tensors.gradient_scaling import Scaling
from steadytrain.capture.tensors.measurement_schedule import MeasurementSchedule
from steadytrain.core.model import Reading


class LiveRun:
    """One process's training. Everything is the training thread's.

    Args:
        observer: follows every step; given the function that notes something for the user once.
        rehearses: a recorded step is done again here: nothing is recorded.
    """

    def __init__(
        self,
        settings: Settings,
        tell: Tell,
        record: Record,
        *,
        modules: HookedModules,
        observer: Callable[[Callable[[str], None]], StepObserver],
        rehearses: bool,
        clock: Callable[[], float],
    ) -> None:
        self.settings = settings
        self.tell = tell
        self.clock = clock
        self.guard = Guard(tell)
        self.notes: list[str] = []
        self.incidents: list[Path] = []
        self.stopped: RunStopped | None = None
        self.failure: str | None = None
        """What ended the script, where it was no end of its own."""

        self.closed = False
        self.in_backward = False
        self.saw_loss = False
        self.modules = modules
        self.recorder = record(settings, self.guard, tell)
        self.leading = StreamAssignment(self.recorder.begin_stream, modules, self.note)
        self.seen = StepInProgress()
        self.scaling = Scaling()
        self.own_time = OwnTime()
        self.activations = Activations(self.guard, in_graph=settings.in_graph, own_time=self.own_time)
        self.draws = DrawnSamples()
        self.ring = BatchRing()
        self.buffers = BufferKeeper()
        self.lap = Lap(self.guard, tell, self.buffers)
        self.rehearses = rehearses
        self.observer = observer(self.note)
        self.observer.scalers = self.scaling.scalers
        self.recorder.recording = not rehearses and not self.observer.replays
        self.symptom_incidents = self.recorder.incidents(self.observer, self.incidents.append)
        self._made: weakref.ref[torch.optim.Optimizer] | None = None
        self._thread = threading.get_ident()
        self._process = os.getpid()
        self._busy = False

    def is_script(self) -> bool:
        """Whether what is called now is the script's doing, on its training thread, and the watch goes on."""
        return not self.closed and not self._busy and threading.get_ident() == self._thread

    def is_over(self) -> bool:
        """Whether the watch is closed, or this is a forked child of the process that it belongs to."""
        return self.closed or os.getpid() != self._process

    def optimizer_made(self, optimizer: torch.optim.Optimizer) -> None:
        self._made = weakref.ref(optimizer)

    def made(self) -> torch.optim.Optimizer | None:
        """The optimizer that the script made last."""
        return self._made() if self._made is not None else None

    @property
    def rerun(self) -> LoopRerun | None:
        """The look at one more lap of the script's loop, while there is one."""
        return self.lap.rerun

    @property
    def streams(self) -> list[Stream]:
        """One for each optimizer, or for several that step together; the first is the recorded one."""
        return self.leading.streams

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is called meanwhile is our own doing and not the script's."""
        in_backward, self.in_backward, self._busy = self.in_backward, False, True
        try:
            yield
        finally:
            self.in_backward, self._busy = in_backward, False

    def note(self, note: str) -> None:
        """Tell the user something, once, and keep it with the run."""
        if note not in self.notes:
            self.notes.append(note)
            self.tell(f"note: {note}")

    def instruments(self, stream: Stream) -> MeasurementSchedule:
        """What measures ``stream`` beside the gate."""
        if stream.instruments is None:

            def record(step: int, reading: Reading) -> None:
                self.recorder.read(stream, step, self.clock(), reading)

            first = self.streams[0]
            activations = self.activations if stream is first else None
            others = {id(root) for root in stream.roots()} - {id(root) for root in first.roots()}
            if others and self.settings.level.modules_every is not None:
                self.note(f"outputs of modules are looked at in steps of {first.name} only, for the models it updates")
            stream.instruments = MeasurementSchedule(
                self.settings.level,
                activations,
                self.guard,
                record,
                self.note,
                self.recorder.set_fact,
                self.recorder.saw_logits,
            )
        return stream.instruments

    def state_loaded(self) -> None:
        """The script has loaded a state: what follows is measured as the first steps of a run are."""
        for stream in self.streams:
            if stream.instruments is not None:
                stream.instruments.renewed(stream.step)

    def forget_step(self) -> None:
        """A new step begins."""
        self.seen = StepInProgress()
        self.own_time.restart()
        self.buffers.step_ends()

    def release_done(self) -> None:
        """Hold nothing any more of models that the script has let go of."""
        for stream in self.leading.take_done():
            self.ring.release(list(stream.roots()))
            self.buffers.release()
            self.observer.stream_done(stream)
            stream.release()

    def kept_batches(self) -> list[MicroBatch]:
        """Those of the step that forms, and of the last ones."""
        return [*self.seen.micro_batches, *(batch for _, batches in self.ring.steps() for batch in batches)]

    @property
    def memory_bytes(self) -> int:
        """What steadytrain itself holds: the ring of batches, the history, and samples of tensors."""
        histories = sum(stream.history.size_bytes for stream in self.streams)
        samples = sum(stream.instruments.held_bytes for stream in self.streams if stream.instruments)
        followed = self.observer.memory_bytes
        return self.seen.size_bytes + self.ring.size_bytes + histories + samples + followed
