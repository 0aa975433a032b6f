"""The state that the parts of a watcher share: the run, its observer, and the step in progress. It decides nothing."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from steadytrain.capture.hooks.fail_open import Guard, Tell
from steadytrain.capture.hooks.hooked_modules import HookedModules
from steadytrain.capture.hooks.patches import Events
from steadytrain.capture.incident.context import LoopRerun
from steadytrain.capture.incident.crash.reused_graph import BACKWARDS_MAX, Backward
from steadytrain.capture.incident.incident import script_facts
from steadytrain.capture.settings import Settings
from steadytrain.capture.step import ranks
from steadytrain.capture.step.input_recorder import BatchRing, BufferKeeper, MicroBatch
from steadytrain.capture.step.lap import Lap
from steadytrain.capture.step.observers import StepObserver
from steadytrain.capture.step.optimizer_streams import StepInProgress, Stream
from steadytrain.capture.step.own_time import OwnTime
from steadytrain.capture.step.recording import Record
from steadytrain.capture.step.replaced_optimizers import ReplacedFact
from steadytrain.capture.step.run_stopped import RunStopped, quiet_in_threads
from steadytrain.capture.step.sample_indices import DrawnSamples
from steadytrain.capture.step.script_frames import variable_of
from steadytrain.capture.step.steering import Steering
from steadytrain.capture.step.stream_assignment import StreamAssignment
from steadytrain.capture.step.turns_taken import TurnsTaken
from steadytrain.capture.tensors.activations import Activations
from steadytrain.capture.tensors.gradient_scaling import Scaling
from steadytrain.capture.tensors.measurement_schedule import MeasurementSchedule
from steadytrain.core.model import Reading

OTHER_THREAD = "a training on another thread, beside the first one, is neither recorded nor guarded"


class LiveRun:
    """The training of one process. Only the training thread uses this object.

    Args:
        events: the entry points that the hooks of modules call.
        observer: makes the observer of every step; its argument is the function that shows a note to the user once.
        rehearses: whether this process runs a recorded step again; then it records nothing.
    """

    def __init__(
        self,
        settings: Settings,
        tell: Tell,
        record: Record,
        *,
        events: Events,
        observer: Callable[[Callable[[str], None]], StepObserver],
        rehearses: bool,
        clock: Callable[[], float],
    ) -> None:
        self.settings = settings
        self.tell = tell
        self.clock = clock
        self.guard = Guard(tell)
        self.notes: list[str] = []
        self._waiting: list[str] = []
        self.incidents: list[Path] = []
        self._stopped: RunStopped | None = None
        self.failure: str | None = None
        """What ended the script, if it did not end normally."""

        self.closed = False
        self.in_backward = False
        self.saw_loss = False
        self.modules = HookedModules(events, self.guard)
        self.recorder = record(settings, self.guard, tell)
        self.leading = StreamAssignment(self.recorder.begin_stream, self.modules, self.note)
        self.seen = StepInProgress()
        self.backwards: deque[Backward] = deque(maxlen=BACKWARDS_MAX)
        self.scaling = Scaling()
        self.turns = TurnsTaken()
        self.own_time = OwnTime()
        self.activations = Activations(self.guard, in_graph=settings.in_graph, own_time=self.own_time)
        self.draws = DrawnSamples()
        self.ring = BatchRing()
        self.buffers = BufferKeeper()
        self.lap = Lap(self.guard, tell, self.buffers)
        self.rehearses = rehearses
        self.observer = observer(self.note)
        self.observer.scalers = self.scaling.scalers
        self.own_time.unseen.hides = not self.observer.replays
        self.recorder.recording = not rehearses and not self.observer.replays
        self.symptom_incidents = self.recorder.incidents(self.observer, self.incidents.append)
        self.steering = settings.steering or Steering()
        self.steering.joins(self)
        self._made: weakref.ref[torch.optim.Optimizer] | None = None
        self._replaced = ReplacedFact()
        self.leading.replaced, self.leading.came_back = self._optimizer_replaced, self._optimizer_came_back
        self._thread = threading.get_ident()
        self._process = os.getpid()
        self._busy = False

    @property
    def stopped(self) -> RunStopped | None:
        """What ends the script, once an update was refused or the run was stopped."""
        return self._stopped

    @stopped.setter
    def stopped(self, stopped: RunStopped) -> None:
        if self._stopped is None and threading.current_thread() is not threading.main_thread():
            quiet_in_threads()
        self._stopped = stopped.of_run(self.settings.run_dir, self.settings.description)

    def is_script(self) -> bool:
        """Whether the current call comes from the script, on its training thread, while the watch is on."""
        return not self.closed and not self._busy and threading.get_ident() == self._thread

    def calls_here(self, module: torch.nn.Module) -> bool:
        """Like ``is_script``, where the script calls a model with gradients on: this thread is its training thread from
        now on, if no step was recorded on the one before, or if that has ended and ``module`` trains."""
        if self._elsewhere() and (not self.last_step or (module.training and self._has_ended())):
            self._thread = threading.get_ident()
        return self.is_script()

    def trains_here(self) -> bool:
        """The same where it begins a backward or makes an optimizer, which is no evaluation."""
        if self._elsewhere() and (not self.last_step or self._has_ended()):
            self._thread = threading.get_ident()
        return self.is_script()

    def updates_here(self, stream: Stream | None) -> bool:
        """The same before an update of ``stream``, if it is a recorded one: also if the thread before waits for another
        one. A refused update stays refused, whichever thread asks for it."""
        if self._elsewhere():
            if not self.last_step or self._has_ended() or (stream is not None and _waits(self._thread)):
                self._thread = threading.get_ident()
            elif self.stopped is not None and stream is not None:
                raise self.stopped
            else:
                self.note(OTHER_THREAD)
        return self.is_script()

    def _elsewhere(self) -> bool:
        return threading.get_ident() != self._thread and not (self.closed or self._busy or self.in_backward)

    def _has_ended(self) -> bool:
        return self._thread not in {one.ident for one in threading.enumerate()}

    def is_over(self) -> bool:
        """Whether the watch is closed, or this process is a forked child of the watched one."""
        return self.closed or os.getpid() != self._process

    def optimizer_made(self, optimizer: torch.optim.Optimizer) -> None:
        self._made = weakref.ref(optimizer)
        with self.guard.part("comparing optimizers"):
            self.leading.made(optimizer)

    def made(self) -> torch.optim.Optimizer | None:
        """The optimizer that the script created last."""
        return self._made() if self._made is not None else None

    def _optimizer_replaced(
        self, stream: Stream, old: torch.optim.Optimizer | None, new: torch.optim.Optimizer
    ) -> None:
        with self.guard.part("going on with another optimizer"):
            if self._replaced.add(stream, old, new):
                self.recorder.set_fact(ReplacedFact.NAME, self._replaced.value)
            self.observer.optimizer_replaced(stream, old)
            self.steering.stream_done(stream)  # its copies of the state are those of the old one

    def _optimizer_came_back(self) -> None:
        with self.guard.part("going on with another optimizer"):
            self._replaced.came_back()
            self.recorder.set_fact(ReplacedFact.NAME, self._replaced.value)

    @property
    def rerun(self) -> LoopRerun | None:
        """The loop rerun in progress, or None."""
        return self.lap.rerun

    @property
    def streams(self) -> list[Stream]:
        """One for each optimizer, or for several that step together. The first is the recorded one."""
        return self.leading.streams

    @property
    def last_step(self) -> int:
        """The highest step that an optimizer has ended; 0 before the first."""
        return max((stream.step for stream in self.streams), default=0)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Calls inside this context come from steadytrain, not from the script."""
        in_backward, self.in_backward, self._busy = self.in_backward, False, True
        try:
            yield
        finally:
            self.in_backward, self._busy = in_backward, False

    def note(self, note: str) -> None:
        """Show ``note`` to the user, once, and keep it with the run."""
        if note not in self.notes:
            self.notes.append(note)
            if ranks.rank() == 0 or ranks.world_size() < 2:
                self.tell(f"note: {note}")
            else:
                self._waiting.append(note)

    def tell_notes(self) -> None:
        """Show the notes of another rank than the first, if the first is not recorded: else it has the same."""
        waiting, self._waiting = self._waiting, []
        for note in waiting if ranks.speaks(self.settings.run_dir) else ():
            self.tell(f"note, rank {ranks.rank()}: {note}")

    def rolled_back(self, stream: Stream, first: int, last: int) -> None:
        """The state is that from before step ``first``, and the steps up to ``last`` count no more for detectors."""
        for one in self.streams:
            one.history.forget(after=one.step - (last - first + 1))
            one.writes.restored(one)
        self.observer.rolled_back(stream)

    def instruments(self, stream: Stream) -> MeasurementSchedule:
        """The measurements of ``stream`` in addition to the gate."""
        if stream.instruments is None:

            def record(step: int, reading: Reading) -> None:
                self.recorder.read(stream, step, self.clock(), reading)

            first = self.streams[0]
            activations = self.activations if stream is first else None
            others = {id(root) for root in stream.roots()} - {id(root) for root in first.roots()}
            if others and self.settings.level.modules_every is not None:
                self.note(
                    f"outputs of modules are measured only for the models that the {self._told_apart(first)} updates"
                )
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

    def _told_apart(self, stream: Stream) -> str:
        """What updates the models of ``stream``; with the name in the script where another one is called the same."""
        named = _named(stream)
        alike = sum(_named(one) == named for one in self.streams) > 1
        name = variable_of(stream.optimizers[0]) if alike and stream.optimizers else ""
        return f"{named} ({name})" if name else named

    def state_loaded(self) -> None:
        """The script has loaded a state: measure the next steps like the first steps of a run."""
        for stream in self.streams:
            if stream.instruments is not None:
                stream.instruments.renewed(stream.step)

    def forget_step(self) -> None:
        """A new step begins."""
        self.seen = StepInProgress()
        self.own_time.restart()
        self.buffers.step_ends()

    def release_done(self) -> None:
        """Release everything that belongs to models that the script has dropped."""
        for stream in self.leading.take_done():
            self.steering.stream_done(stream)
            stream.last_facts = stream.last_facts or script_facts(stream, list(stream.roots()))
            self.ring.release(list(stream.roots()))
            self.buffers.release()
            self.observer.stream_done(stream)
            stream.release()

    def kept_batches(self) -> list[MicroBatch]:
        """The recorded micro-batches of the step in progress and of the last steps."""
        return [*self.seen.micro_batches, *(batch for _, batches in self.ring.steps() for batch in batches)]

    @property
    def memory_bytes(self) -> int:
        """Memory that steadytrain itself uses: the ring of batches, the history, and samples of tensors."""
        histories = sum(stream.history.size_bytes for stream in self.streams)
        samples = sum(stream.instruments.held_bytes for stream in self.streams if stream.instruments)
        followed = self.observer.memory_bytes
        return self.seen.size_bytes + self.ring.size_bytes + histories + samples + followed


def _named(stream: Stream) -> str:
    """The optimizer and its models, such as ``Adam of Generator``."""
    models = ", ".join(dict.fromkeys(type(root).__name__ for root in stream.roots()))
    optimizers = " and ".join(dict.fromkeys(type(one).__name__ for one in stream.optimizers))
    return f"{optimizers or 'first optimizer'}{f' of {models}' if models else ''}"


def _waits(thread: int) -> bool:
    """Whether the thread with this number waits for another one, as ``join`` and a result of a pool do."""
    frame = sys._current_frames().get(thread)
    return frame is not None and frame.f_code.co_filename == threading.__file__
