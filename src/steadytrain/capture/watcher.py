"""The one live object: it follows the training loop, guards the update, and freezes an incident.

::

      data loader        root module            loss             optimizer.step
    ──► fetch ──────► forward_begins ──► backward_begins ──► step_begins ──► (update) ──► step_ends ──┐
    ▲   remember       record inputs,     remember the        THE GATE:                   record the  │
    │   the batch      RNG, buffers       loss (no sync)      one look at loss            step, run   │
    │                  forward_ends       backward_ends       and gradients               detectors   │
    └─────────────────────────────────────────────────────────────────────────────────────────────────┘

At the gate a loss or gradient that is not finite becomes an incident: the bundle is written, and under the policy
``stop`` the update is refused and the process ends with status 70. Everything is called on the training thread, and
every entry point is guarded: an error of ours is told once and training goes on.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from steadytrain.capture import ranks
from steadytrain.capture.activations import Activations
from steadytrain.capture.books import Books, Settings, started_at, utc_now
from steadytrain.capture.clipping import ClipArguments
from steadytrain.capture.data_wait import DataWait
from steadytrain.capture.discover import find_model, name_parameters, optimizer_parameters, plain_name
from steadytrain.capture.earlier import history_of
from steadytrain.capture.evidence import Moment, evidence_of, write_evidence
from steadytrain.capture.failopen import Guard, Tell
from steadytrain.capture.follower import Beside, Follower
from steadytrain.capture.frames import loop_lines
from steadytrain.capture.gate import Measurement, measure, reason
from steadytrain.capture.history import History
from steadytrain.capture.hooked import HookedModules
from steadytrain.capture.incident import freeze_incident
from steadytrain.capture.instruments import Instruments
from steadytrain.capture.joining import may_join, rest_of
from steadytrain.capture.loads import Loads
from steadytrain.capture.loss import loss_term
from steadytrain.capture.message import PARTLY_APPLIED, UNTOUCHED, stop_message
from steadytrain.capture.own_time import OwnTime
from steadytrain.capture.patches import MISSING, Patches
from steadytrain.capture.precision import logits_dtype, precision_facts
from steadytrain.capture.recorder import (
    BatchRing,
    BufferKeeper,
    MicroBatch,
    RandomState,
    Schedule,
    record_call,
    tensors_in,
)
from steadytrain.capture.rewind import recorder_of
from steadytrain.capture.scaling import Scaling
from steadytrain.capture.scene import Investigator, Lap, Rehearsal, Scene
from steadytrain.capture.sink import NoSink, Sink
from steadytrain.capture.step_batches import STEP_BATCHES, StepBatches
from steadytrain.capture.streams import Seen, Stream
from steadytrain.capture.symptom_incidents import SymptomIncidents
from steadytrain.model import (
    Action,
    Finding,
    Incident,
    Reading,
    Symptom,
)
from steadytrain.store.bundle import update_incident
from steadytrain.stories.telling import Story
from steadytrain.symptoms import Detector

STOPPED_STATUS = 70
MICRO_BATCHES_MAX = 256
MICRO_BYTES_MAX = 1 << 30
LOSSES_MAX = 4096
FETCHED_MAX = 64
OBSERVED_INCIDENTS_MAX = 3
LAP_S_MAX = 120.0
HAND_WRITTEN_AFTER_BACKWARDS = 200
NO_SINK = NoSink()


launched: Watcher | None = None
"""In a process that was launched to do recorded steps again: its watcher, which ``watch`` in the script gets."""


class RunStopped(SystemExit):
    """Raised at the gate to end the process with status 70; the update was not applied.

    A ``SystemExit``, so that ``except Exception`` in a training loop does not swallow it and ``finally`` still runs.
    """

    def __init__(self, message: str) -> None:
        super().__init__(STOPPED_STATUS)
        self.message = message

    def __str__(self) -> str:
        return self.message


class LapTooLong(SystemExit):
    """Raised in the training thread when one more lap takes too long; the update has been refused before."""

    def __init__(self) -> None:
        super().__init__(STOPPED_STATUS)


class Watcher:
    """Follows one process's training. ``close`` takes every patch and hook out again."""

    def __init__(
        self,
        settings: Settings,
        *,
        tell: Tell,
        detectors: Sequence[Detector] = (),
        investigator: Investigator | None = None,
        rehearsal: Rehearsal | None = None,
        follower: Follower | None = None,
        sink: Sink = NO_SINK,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.guard = Guard(tell)
        self.incidents: list[Path] = []
        self.backward_calls = 0
        self.stopped: RunStopped | None = None
        self.streams: list[Stream] = []
        self.notes: list[str] = []
        self._tell = tell
        self._books = Books(settings, self.guard, tell, detectors, sink)
        self._books.recording = rehearsal is None and not (follower and follower.replays)
        self._investigator = investigator
        self._rehearsal = rehearsal
        self._clock = clock
        self._thread = threading.get_ident()
        self._process = os.getpid()
        self._closed = False
        self._stream_of: dict[int, Stream] = {}
        self._datasets: dict[int, int] = {}
        self._modules = HookedModules(self)
        self._calls: list[tuple[nn.Module, MicroBatch | None]] = []
        self._seen = Seen()
        self._stepped: tuple[Stream, Seen] | None = None
        self._scalers: dict[int, Any] = {}
        self._follower = follower or recorder_of(settings, self._note, recording=rehearsal is None)
        self._follower.scalers = self._scalers
        self._symptom_incidents = SymptomIncidents(self._books, self.guard, self._follower, tell, self.incidents.append)
        self._observed = 0
        self._scaler_step: tuple[int, bool] | None = None
        self._scaling = Scaling()
        self._activations = Activations(self.guard, in_graph=settings.in_graph)
        self._data_wait = DataWait()
        self._own_time = OwnTime()
        self._logits: str | None = None
        self._told_precision = False
        self._ring = BatchRing()
        self._buffers = BufferKeeper()
        self._random_after: RandomState | None = None
        self._in_backward = False
        self._saw_loss = False
        self._busy = False
        self.step_batches: StepBatches | None = None
        self._lap: Lap | None = None
        self._lap_finish: Callable[[Finding], RunStopped] | None = None
        self._lap_deadline: threading.Timer | None = None
        self._schedule: Schedule | None = None
        self._told_hand_written = False
        self._loads = Loads(self.guard, self._note, self.set_fact)
        self._patches = Patches(self)

    def follow(self, guest: Follower) -> None:
        """One more that is told of every step, and changes nothing."""
        self._follower = Beside(self._follower, guest)

    def aside(self) -> AbstractContextManager[None]:
        """What is called meanwhile is our own doing and not the script's."""
        return self._ourselves()

    def read_by_number(self, number: int) -> int | None:
        """The ``id`` of the data set that is the ``number``-th that the script reads from."""
        return next((key for key, known in self._datasets.items() if known == number), None)

    # -- what the script does --------------------------------------------------------------------------------------

    def optimizer_made(self, optimizer: torch.optim.Optimizer) -> None:
        if self._mine():
            with self.guard.part("finding the model"):
                self._modules.watch_model(find_model(optimizer_parameters([optimizer])))

    def watch_model(self, model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
        """A model, and an optimizer if there is one, that are there already."""
        if optimizer is not None:
            self.optimizer_made(optimizer)
        with self.guard.part("watching the model"):
            parameters = optimizer_parameters([optimizer]) if optimizer is not None else list(model.parameters())
            self._modules.watch_model(name_parameters([model], parameters))

    def loss_given(self, loss: Tensor) -> None:
        """The script tells its loss itself, before an update that it writes itself."""
        if self._mine() and self._lap is None:
            with self.guard.part("reading the loss"):
                self._seen.losses[:] = [loss_term(loss)]
                self._saw_loss = True

    def set_fact(self, name: str, value: Any) -> None:
        """One more fact of the run, kept until there is a run folder."""
        if not self._closed:
            self._books.set_fact(name, value)

    def load_watch(self) -> Loads | None:
        return self._loads if self._mine() and self._lap is None and self._rehearsal is None else None

    def saving(self, optimizer: torch.optim.Optimizer) -> None:
        """The script asks an optimizer for its state: of the first one, a card of this moment is written."""
        stream = self._stream_of.get(id(optimizer))
        if stream is None or stream is not self.streams[0] or optimizer is not stream.optimizers[0]:
            return
        if self.load_watch() is not None and self._books.recording and stream.step and stream.model is not None:
            with self.guard.part("noting what is saved"), self._ourselves():
                self._loads.save(
                    self._books.begin().path,
                    run=self.settings.run_name,
                    step=stream.step,
                    roots=list(stream.roots()),
                    optimizer=optimizer,
                    names=stream.model.names,
                    scaler=next(iter(self._scalers.values()), None),
                )

    def compile_called(self, subject: Any, result: Any, how: dict[str, Any]) -> None:
        if not self._mine():
            return
        with self.guard.part("watching compiled code"):
            self._activations.compile_called(subject, how)
            self._modules.compile_called(subject, result)

    def fetch_begins(self, iterator: Any) -> Any:
        if not self._mine():
            return MISSING
        batch = MISSING
        if self._lap is None:
            self._data_wait.begins(iterator)
            with self.guard.part("following the data loader"):
                batch = self._follower.fetch_begins(self._dataset_number(iterator))
            return batch  # noqa: RET504 (as below)
        with self.guard.part("one more lap"):
            batch = self._lap.fetch(self._dataset_number(iterator))
        return batch  # noqa: RET504 (a guarded part may end without it)

    def fetch_ends(self, iterator: Any, batch: Any) -> Any:
        if not self._mine():
            return MISSING
        self._data_wait.ends(iterator)
        if len(self._seen.fetched) < FETCHED_MAX:
            self._seen.fetched.append((self._dataset_number(iterator), batch))
        other = MISSING
        with self.guard.part("recording what was fetched"):
            other = self._follower.fetched(self._dataset_number(iterator), batch)
        return other  # noqa: RET504 (as above)

    def forward_begins(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        if not self._mine() or self._in_backward:
            return None
        outermost, training = not self._calls, torch.is_grad_enabled()
        self._modules.note_call(module, outermost=outermost)
        call: MicroBatch | None = None
        changed = None
        if outermost and self._lap is None:
            with self._own_time, self.guard.part("keeping the buffers"):
                self._buffers.keep(module)
        if outermost and training:
            with self._own_time, self.guard.part("recording the batch"):
                if self._lap is not None:
                    changed = self._lap.forward_begins(module, args, kwargs)
                else:
                    if self.step_batches is not None and (batch := self.step_batches.take()) is not MISSING:
                        self._follower.fetched(STEP_BATCHES, batch)
                    call = record_call(module, args, kwargs, self._random_after)
                    changed = self._follower.call_begins(module, call, args, kwargs)
        self._calls.append((module, call))
        return changed

    def forward_ends(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if not self._mine() or self._in_backward or not self._calls:
            return
        while self._calls:  # a call that never came back (an exception without always_call) is dropped on the way
            called, call = self._calls.pop()
            if called is module:
                break
        if self._activations.armed and self._lap is None:
            with self._own_time:
                self._activations.saw(module, output)
        if self._calls:
            return
        with self.guard.part("recording the batch"):
            if call is not None:
                self._modules.called.setdefault(id(module), module)
                call.scalar_outputs.update(_scalar_outputs(output))
                self._logits = self._logits or logits_dtype(output)
                if len(self._seen.micro_batches) < MICRO_BATCHES_MAX and self._seen.size_bytes < MICRO_BYTES_MAX:
                    self._seen.micro_batches.append(call)
            elif self._lap is not None and not torch.is_grad_enabled():
                self._lap.other_forward_ends()
            if self._lap is None:
                self._random_after = RandomState.take()
                self._follower.forward_ended(call, self._random_after)

    def backward_begins(self, roots: Any, *, accumulates: bool) -> bool:
        if not self._mine() or self._in_backward:
            return False
        self._in_backward = True
        self.backward_calls += 1
        if self.step_batches is not None:
            self.step_batches.backward_begins()
        if self._activations.armed:
            with self._own_time, self.guard.part("measuring the outputs of modules"):
                self._activations.backward_begins()
        self._seen.backward_begins()
        with self.guard.part("following backward"):
            self._follower.backward_begins()
        with self.guard.part("reading the loss"):
            scalars = [root for root in _as_tensors(roots) if root.numel() == 1 and root.is_floating_point()]
            if self._lap is not None and scalars:
                self._lap.backward_begins(scalars[0])
            elif accumulates and len(scalars) == 1 and len(self._seen.losses) < LOSSES_MAX:
                self._seen.losses.append(loss_term(scalars[0]))
                self._saw_loss = True
                self._follower.loss_seen(scalars[0])
                self._look_at_loss(scalars[0])
            if not self._stream_of and self.backward_calls >= HAND_WRITTEN_AFTER_BACKWARDS:
                self._tell_hand_written()
                self._forget_step()
        return True

    def _look_at_loss(self, root: Tensor) -> None:
        """On the CPU a look at the loss costs nothing, and here the lines that made it still have their variables."""
        if root.device.type != "cpu" or math.isfinite(root.item()) or self._seen.early is not None:
            return
        if self.settings.policy != "stop" or self._scalers or self._investigator is None:
            return
        if not self._seen.micro_batches:
            return
        batch, term = self._seen.micro_batches[-1], self._seen.losses[-1]
        parameters = {
            plain_name(name): parameter
            for root in self._modules.called.values()
            for name, parameter in root.named_parameters()
        }
        scene = Scene(
            step=0,
            micro_batches=[batch],
            losses=[term],
            loss_finite=False,
            parameters=parameters,
            roots=list(self._modules.called.values()),
            buffers=self._buffers,
            fetched=(),
            loop=loop_lines(batch.frames, term.frames),
            alone=not any(stream.together for stream in self.streams),
            no_lap="the loss is looked at before backward",
        )
        with self._ourselves():
            self._seen.early = self._investigator.look_at_loss(scene)

    def backward_ends(self) -> None:
        self._in_backward = False

    def gradients_zeroed(self, owner: torch.optim.Optimizer | nn.Module) -> None:
        """What was accumulated is thrown away: a script that skips a bad step by itself is left alone."""
        if not self._mine() or self._lap is not None or len(self.streams) != 1:
            return
        stream = self.streams[0]
        with self.guard.part("forgetting gradients that are thrown away"):
            if [owner] != stream.optimizers and (stream.model is None or (owner,) != stream.model.roots):
                return
            self._seen.gradients_zeroed()

    def scaler_scales(self, scaler: Any) -> None:
        if self._mine() and scaler.is_enabled():  # one that is not has no scale, and scales nothing
            self._scalers[id(scaler)] = scaler

    def scaler_step_begins(self, scaler: Any, optimizer: torch.optim.Optimizer) -> None:
        if self._mine():
            self._scaler_step = (id(optimizer), False)
            with self.guard.part("following the gradient scaler"):
                self._scaling.scaler_step_begins(scaler, optimizer)
                if scaler.is_enabled():
                    self._books.set_fact("loss_scale_growth_interval", scaler.get_growth_interval())

    def scaler_step_ends(self, scaler: Any, optimizer: torch.optim.Optimizer) -> None:
        """A scaler that found Inf does not call the optimizer: the step is recorded as skipped."""
        if not self._mine() or self._scaler_step is None:
            return
        self._scaler_step_ends(scaler, optimizer)
        with self.guard.part("following the gradient scaler"):
            self._scaling.scaler_step_ends()
            note = self._scaling.take_note()
            if note is not None:
                self._note(note)

    def _scaler_step_ends(self, scaler: Any, optimizer: torch.optim.Optimizer) -> None:
        assert self._scaler_step is not None
        seen, self._scaler_step = self._scaler_step[1], None
        if seen or not scaler.is_enabled():
            return
        if self._lap is not None:  # the lap's gradients made the scaler skip: this is as far as the lap comes
            raise self._finish_lap(self._lap.gate)
        with self.guard.part("recording a skipped step"):
            stream = self._lead(optimizer, skipped=True)
            if stream is not None:
                stream.pending = self._measure(stream, optimizer, skipped=True)
                self._follower.gate(stream, self._seen, stream.pending)
                self._finish_step(stream)

    def clip(self, original: Callable[..., Any], parameters: Any, args: Any, kwargs: Any) -> Any:
        """The script clips by the norm; ``original`` is torch's own function and is called exactly once."""
        return self._clip(original, parameters, args, kwargs, ClipArguments.of)

    def clip_by_value(self, original: Callable[..., Any], parameters: Any, args: Any, kwargs: Any) -> Any:
        """The script clips each element by its size."""
        return self._clip(original, parameters, args, kwargs, ClipArguments.of_value)

    def _clip(
        self,
        original: Callable[..., Any],
        parameters: Any,
        args: Any,
        kwargs: Any,
        read: Callable[[Any, Any], ClipArguments],
    ) -> Any:
        if not self._mine() or self._lap is not None:
            return original(parameters, *args, **kwargs)
        clipping, reading = self._seen.clipping, None
        with self.guard.part("reading the gradients before clipping"):
            tensors = [parameters] if isinstance(parameters, Tensor) else parameters
            arguments = read(args, kwargs)
            self._scaling.clip_begins(tensors, self._scalers.values(), limit=arguments.limit)
            reading = clipping.begin(tensors, arguments, self.guard)
        with reading or nullcontext():
            total = original(parameters, *args, **kwargs)
        with self.guard.part("reading the gradients before clipping"):
            clipping.end(total)
        return total

    def step_begins(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
        if not self._mine():
            return None
        if self._scaler_step is not None and self._scaler_step[0] == id(optimizer):
            self._scaler_step = (id(optimizer), True)
        if self.stopped is not None:
            with self.guard.part("restoring buffers"):
                self._buffers.restore()
            raise self.stopped
        if self._lap is not None:
            raise self._finish_lap(self._lap.gate)
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)  # args[0] is the optimizer itself
        if not callable(closure):
            self._gate(optimizer, can_lap=True)
            return None

        micro_batches, losses = len(self._seen.micro_batches), len(self._seen.losses)

        def watched_closure() -> Any:
            # LBFGS evaluates several times in a step, and the last stands for it. What was accumulated before stays.
            del self._seen.micro_batches[micro_batches:], self._seen.losses[losses:]
            self._seen.evaluations += 1
            loss = closure()
            self._gate(optimizer, can_lap=False)
            return loss

        if "closure" in kwargs:
            return args, {**kwargs, "closure": watched_closure}
        return (args[0], watched_closure, *args[2:]), kwargs

    def step_ends(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        stream = self._stream_of.get(id(optimizer))
        if not self._mine() or stream is None:
            return
        with self._own_time, self.guard.part("recording a step"):
            if stream.pending is not None:
                self._finish_step(stream)
            if optimizer is stream.optimizers[-1]:
                self._updated(stream)

    def _updated(self, stream: Stream) -> None:
        """All optimizers that step together have stepped."""
        if stream.updating:
            stream.updating = False
            self._instruments(stream).after_update(stream, stream.step)
            self._follower.updated(stream)

    # -- the gate --------------------------------------------------------------------------------------------------

    def _gate(self, optimizer: torch.optim.Optimizer, *, can_lap: bool) -> None:
        """Look at the loss and the gradients that ``optimizer`` is about to apply; may raise :class:`RunStopped`."""
        looked: list[tuple[Stream, Measurement]] = []
        whole = False
        with self.guard.part("the gate"):
            looked += self._look(optimizer, can_lap=can_lap)
            whole = True
        if not whole:
            self._forget_step()  # or the batches of every step to come would pile up
        for stream, measured in looked:
            if stream.pending is not None and stream.pending.committed:
                continue  # a closure is evaluated again, in a step that is on record as an incident
            stream.pending = measured
            with self.guard.part("the tape at the gate"):
                self._follower.gate(stream, self._seen, measured)
            if not measured.is_incident or self._rehearsal is not None or self._follower.replays:
                continue
            if self.settings.policy == "observe":
                with self.guard.part("writing an incident"):
                    self._observe(stream, measured)
                continue
            stream.pending = None
            try:
                self._stop(stream, optimizer, measured, can_lap=can_lap)
            except Exception as error:  # the update must not be applied, whatever of ours broke on the way
                self.guard.report("handling the incident", error)
                self.stopped = RunStopped(f"steadytrain refused the update of step {measured.record.step}")
                raise self.stopped from None

    def _look(self, optimizer: torch.optim.Optimizer, *, can_lap: bool) -> Iterator[tuple[Stream, Measurement]]:
        """The stream and the measurement of this step, if ``optimizer`` leads it."""
        stream = self._lead(optimizer)
        if stream is None:
            return
        if self._rehearsal is not None and self._rehearsal.begins_after(stream.step + 1):
            self._rehearse(self._rehearsal, stream, optimizer, can_lap=can_lap)
            return
        yield stream, self._measure(stream, optimizer, skipped=False)

    def _lead(self, optimizer: torch.optim.Optimizer, *, skipped: bool = False) -> Stream | None:
        """The stream that ``optimizer`` steps for; None when another optimizer already led this step."""
        stream = self._stream_of.get(id(optimizer))
        fresh = bool(self._seen.losses)
        if stream is None:
            led, rest = self._stepped or (None, Seen())
            same_step = self._saw_loss and not self._seen.micro_batches
            if led is not None and not fresh and (led.own_steps <= 1 or same_step):
                if skipped or may_join(optimizer):
                    led.optimizers.append(optimizer)
                    self._stream_of[id(optimizer)] = led
                    return None
                self._seen = rest
            name = "main" if not self.streams else f"optimizer-{len(self.streams) + 1}"
            stream = self._begin_stream(name)
            stream.optimizers.append(optimizer)
            self.streams.append(stream)
            self._stream_of[id(optimizer)] = stream
            return stream
        followed = self._saw_loss or optimizer is not stream.optimizers[0]
        if len(stream.optimizers) > 1 and not fresh and followed:
            return None  # no new backward: the first optimizer's look covered this one's gradients
        return stream

    def _begin_stream(self, name: str) -> Stream:
        history, step = History(stream=name), 0
        if self.settings.continues is not None:
            with self.guard.part("reading the steps of the run before"):
                history, step = history_of(name, self.settings.continues)
        return Stream(name=name, history=history, step=step, began=step)

    def _measure(self, stream: Stream, optimizer: torch.optim.Optimizer, *, skipped: bool) -> Measurement:
        with self._own_time:
            self._updated(stream)
            self._refresh(stream)
        instruments, step = self._instruments(stream), stream.step + 1
        self._seen.waited_s += self._data_wait.take()
        measured = measure(
            stream,
            optimizer,
            self._seen,
            self._scalers.values(),
            self._scaling,
            skipped=skipped,
            weigh=instruments.weighs(step),
            time_s=self._clock(),
            own_s=self._own_time.so_far(),
        )
        if not skipped:
            instruments.before_update(stream, step, measured.scale)
        return measured

    def _instruments(self, stream: Stream) -> Instruments:
        if stream.instruments is None:

            def record(step: int, reading: Reading) -> None:
                self._books.read(stream, step, self._clock(), reading)

            first = self.streams[0]
            activations = self._activations if stream is first else None
            others = {id(root) for root in stream.roots()} - {id(root) for root in first.roots()}
            if others and self.settings.level.modules_every is not None:
                self._note(f"outputs of modules are looked at in steps of {first.name} only, for the models it updates")
            stream.instruments = Instruments(
                self.settings.level,
                activations,
                self.guard,
                record,
                self._note,
                self._books.set_fact,
                self._books.saw_logits,
            )
        return stream.instruments

    # -- a step ends -----------------------------------------------------------------------------------------------

    def _finish_step(self, stream: Stream) -> None:
        measured, stream.pending = stream.pending, None
        assert measured is not None
        batches, stream.step = self._seen.micro_batches, measured.record.step
        self._stepped = (stream, rest_of(self._seen))
        self._forget_step()
        self._ring.add(stream.step, batches)
        self._books.commit(stream, measured)
        with self.guard.part("keeping the tape of the step"):
            self._follower.step_ended(stream, self._books.begin().path if self._books.recording else None)
        instruments = self._instruments(stream)
        if measured.record.skipped:
            instruments.skip_update()
        else:
            stream.updating = True
        found = self._books.look(stream)
        self._books.tell_symptoms(found)
        instruments.raised(found, stream.step)
        self._symptom_incidents.looked(stream, found)
        if stream.own_steps == 1:
            self._modules.settle()
        # The optimizer has its state after the first update; of a model found in the first step no call was seen.
        if not self._told_precision and not measured.record.skipped and (batches or stream.own_steps > 1):
            self._told_precision = True
            with self.guard.part("recording the number formats"):
                autocast = batches[-1].autocast if batches else None
                facts = precision_facts(stream.parameters, stream.optimizers, autocast=autocast, logits=self._logits)
                self._books.set_fact("precision", facts)

    def _forget_step(self) -> None:
        self._seen = Seen()
        self._own_time.restart()
        self._buffers.step_ends()

    # -- an incident -----------------------------------------------------------------------------------------------

    def _observe(self, stream: Stream, measured: Measurement) -> None:
        seen_before = self._is_bad_already(stream)
        self._books.commit(stream, measured)
        if seen_before:
            return  # the detectors look in their turn
        symptoms = self._books.detect(stream)
        self._books.tell_symptoms(symptoms)
        self._instruments(stream).raised(symptoms, measured.record.step)
        if self._observed >= OBSERVED_INCIDENTS_MAX:
            return
        self._observed += 1
        action = Action(measured.record.step, "observe", "observed", "policy observe: the update was applied")
        why = "policy observe: nothing was re-run inside the process; `steadytrain locate` re-runs it in a new one"
        path, incident = self._freeze(stream, measured, symptoms, action, Finding(None, why))
        self._books.add_incident(path, incident)

    def _freeze(
        self,
        stream: Stream,
        measured: Measurement,
        symptoms: Sequence[Symptom],
        action: Action,
        finding: Finding,
    ) -> tuple[Path, Incident]:
        path, incident = freeze_incident(
            self._books, self.guard, stream, self._seen, self._ring, measured, symptoms, action, finding
        )
        self.incidents.append(path)
        self._symptom_incidents.frozen(symptoms)
        with self.guard.part("putting the recording into the bundle"):
            self._follower.incident(stream, self._books.begin().path, path)
        return path, incident

    def _stop(self, stream: Stream, optimizer: torch.optim.Optimizer, measured: Measurement, *, can_lap: bool) -> None:
        """Refuse the update: write what there is, find the first bad operation, end the process."""
        step = measured.record.step
        measured.record = replace(measured.record, refused=True)
        frozen: tuple[Path, Incident] | None = None
        symptoms: list[Symptom] = []
        with self.guard.part("restoring buffers"):
            self._buffers.restore()
        what: Any = "refused-rest-of-update" if self._seen.moved_weights else "refused-update"
        action = Action(step, "stop", what, reason(measured))
        with self.guard.part("recording the refused step"):
            self._books.commit(stream, measured)
            symptoms = self._books.detect(stream)
        self._instruments(stream).at_incident(stream, step, measured.scale)
        with self.guard.part("writing the incident bundle"):
            unfinished = Finding(None, "the search for the first bad operation was cut off")
            frozen = self._freeze(stream, measured, symptoms, action, unfinished)
        with self.guard.part("writing the ledger"):
            self._books.open(stream).add_action(action)

        def finish(finding: Finding) -> RunStopped:
            return self._finish_stop(measured, frozen, finding)

        answer: Finding | Lap = Finding(None, "no search for the first bad operation was made")
        if self._investigator is not None:
            answer = Finding(None, "the re-run failed by itself; see the warning above")
            with self.guard.part("re-running the step"), self._ourselves():
                step, loss_finite = measured.record.step, measured.loss_finite
                scene = self._scene(stream, optimizer, step=step, loss_finite=loss_finite, can_lap=can_lap)
                answer = self._seen.early or self._investigator.investigate(scene)
        if isinstance(answer, Finding):
            raise finish(answer)
        self._begin_lap(answer, stream, finish)

    def _finish_stop(self, measured: Measurement, frozen: tuple[Path, Incident] | None, finding: Finding) -> RunStopped:
        step = measured.record.step
        self.stopped = RunStopped(f"steadytrain refused the update of step {step}")
        if frozen is not None:
            with self.guard.part("adding the located operation to the bundle"):
                complete = replace(frozen[1], finding=finding)
                update_incident(frozen[0], complete)
                self._books.add_incident(frozen[0], complete)
        with self.guard.part("telling of the incident"):
            why = reason(measured)
            state = PARTLY_APPLIED if self._seen.moved_weights else UNTOUCHED
            self._tell(stop_message(step, why, measured.bad, finding, state, frozen[0] if frozen else None))
            self.stopped = RunStopped(f"steadytrain refused the update of step {step}: {why}")
        return self.stopped

    def _scene(
        self, stream: Stream, optimizer: torch.optim.Optimizer, *, step: int, loss_finite: bool, can_lap: bool
    ) -> Scene:
        no_lap = None
        if not can_lap:
            no_lap = "the optimizer runs forward and backward inside its own step"
        elif stream.together:
            no_lap = "other ranks would wait for this one"
        elif len(self.streams) > 1 or len(stream.optimizers) > 1:
            no_lap = "several optimizers take turns"
        elif not type(optimizer).__module__.startswith("torch.optim"):
            no_lap = (
                f"the optimizer {type(optimizer).__qualname__} is not known to leave weights without gradient alone"
            )
        batches, losses = self._seen.micro_batches, self._seen.losses
        return Scene(
            step=step,
            micro_batches=batches,
            losses=losses,
            loss_finite=loss_finite,
            parameters=dict(zip(stream.tensor_names, stream.parameters, strict=True)),
            roots=list(stream.roots()),
            buffers=self._buffers,
            fetched=self._seen.fetched,
            loop=loop_lines(batches[-1].frames, losses[-1].frames) if batches and losses else None,
            alone=not stream.together,
            no_lap=no_lap,
        )

    # -- one more lap ----------------------------------------------------------------------------------------------

    def _begin_lap(self, lap: Lap, stream: Stream, finish: Callable[[Finding], RunStopped]) -> None:
        """Let the script round once more: without gradients the optimizer leaves weights and state alone."""
        for parameter in stream.parameters:
            parameter.grad = None
        self._lap, self._lap_finish = lap, finish
        with self.guard.part("keeping the schedule"):
            self._schedule = Schedule.take(stream.optimizers)
        self._tell("the update was refused; going round once more with the same batch to find the operation")
        self._lap_deadline = threading.Timer(LAP_S_MAX, _interrupt, (self._thread,))
        self._lap_deadline.daemon = True
        self._lap_deadline.start()

    def _rehearse(
        self, rehearsal: Rehearsal, stream: Stream, optimizer: torch.optim.Optimizer, *, can_lap: bool
    ) -> None:
        """In a process that was launched to do a recorded step again: this is the step before it."""
        self._refresh(stream)
        with self._ourselves():
            answer = rehearsal.prepare(self._scene(stream, optimizer, step=0, loss_finite=True, can_lap=can_lap))

        def finish(finding: Finding) -> RunStopped:
            rehearsal.done(finding)
            return RunStopped("the recorded step was done again")

        if isinstance(answer, Finding):
            raise finish(answer)
        self._begin_lap(answer, stream, finish)

    def _finish_lap(self, ask: Callable[[], Finding]) -> RunStopped:
        assert self._lap_finish is not None
        if self._lap_deadline is not None:
            self._lap_deadline.cancel()
        lap, self._lap, finish = self._lap, None, self._lap_finish
        finding = Finding(None, "the lap failed by itself; see the warning above")
        with self.guard.part("one more lap"):
            finding = ask()
        if lap is not None:
            with self.guard.part("one more lap"):
                lap.end()
        with self.guard.part("restoring buffers"):
            self._buffers.restore()
        with self.guard.part("restoring the schedule"):
            if self._schedule is not None:
                self._schedule.restore()
        ending = RunStopped("steadytrain refused the update")
        with self.guard.part("handling the incident"):
            ending = finish(finding)
        self.stopped = self.stopped or ending
        return ending

    def abandon_lap(self, why: str) -> None:
        """The script ended, failed or was interrupted during the lap: settle the incident without it."""
        if self._lap is not None:
            lap = self._lap
            late = self._lap_deadline is not None and self._lap_deadline.finished.is_set()
            why = f"it did not come to the optimizer again within {LAP_S_MAX:g} s" if late else why
            self._finish_lap(lambda: lap.abandon(why))

    # -- books -----------------------------------------------------------------------------------------------------

    def script_failed(self, error: BaseException) -> None:
        """The script is about to end by ``error``: keep what tells why memory ran out or ranks lost each other."""
        if self._closed or os.getpid() != self._process or not self._books.recording:
            return
        with self.guard.part("keeping evidence of the failure"):
            moment = Moment(
                created=utc_now(),
                since=started_at(self.settings),
                rank=ranks.rank(),
                step=max((stream.step for stream in self.streams), default=0) or None,
                names={
                    id(parameter): name
                    for stream in self.streams
                    for parameter, name in zip(stream.parameters, stream.tensor_names, strict=True)
                },
                own=list(tensors_in([[b.args, b.kwargs] for b in self._kept_batches()])),
                samples=self._books.machine_samples,
            )
            documents = evidence_of(error, moment, disk=self.settings.run_dir)
            for line in write_evidence(self._books.begin().path, documents) if documents else ():
                self._tell(line)

    def _kept_batches(self) -> list[MicroBatch]:
        return [*self._seen.micro_batches, *(batch for _, batches in self._ring.steps() for batch in batches)]

    def close(self, *, ended: str, exit_status: int | None = None) -> None:
        """Take everything out and write how the run ended. Idempotent."""
        if self._closed or os.getpid() != self._process:
            return
        self.abandon_lap("the script ended before it came to the optimizer again")
        self._closed = True
        self._patches.remove()
        self._modules.remove()
        self._activations.remove()
        if self.stopped is None:
            with self.guard.part("the last look of the detectors"):
                for stream in self.streams:
                    found = self._books.detect(stream)
                    self._books.tell_symptoms(found)
                    self._symptom_incidents.looked(stream, found)
        with self.guard.part("freezing symptoms at the end"):
            self._symptom_incidents.close(self.streams if self.stopped is None else ())
        for stream in self.streams:
            self._instruments(stream).finish()
        with self.guard.part("closing the tape"):
            grave = any(symptom.severity == "critical" for symptom in self.symptoms)
            self._follower.close(finished=ended == "finished" or self.stopped is not None, grave=grave)
        with self.guard.part("closing the run folder"):
            facts = {"ended": ended, "exit_status": exit_status, "notes": self.notes}
            if self._scaling.clipped_before_unscaling:
                facts["clipped_before_unscaling"] = self._scaling.clipped_before_unscaling
            if self.stopped is not None:
                facts |= {"ended": "stopped", "exit_status": STOPPED_STATUS}
            self._books.close(self.streams, facts)

    def forget(self) -> None:
        """In a forked child: this process does not train for us; touch nothing that the parent owns."""
        self._closed = True
        self._books.forget()
        self._follower.forget()
        self._symptom_incidents.forget()

    @property
    def detector_names(self) -> list[str]:
        """The detectors that look, by the name that `explain` knows."""
        return self._books.detector_names

    def evaluated(self, metrics: Mapping[str, float]) -> None:
        """Numbers that were measured beside training, after the last step of the first stream."""
        for stream in self.streams[:1]:
            stream.history.evaluated(stream.step, metrics)

    @property
    def has_folder(self) -> bool:
        """Whether this process has written into the run folder."""
        return self._books.begun

    @property
    def stories(self) -> Sequence[Story]:
        """The symptoms of each stream that belong together, in order; told when the run is closed."""
        return self._books.stories

    @property
    def symptoms(self) -> Collection[Symptom]:
        """What was raised so far."""
        return self._books.symptoms.values()

    @property
    def memory_bytes(self) -> int:
        """What steadytrain itself holds: the ring of batches, the history, and samples of tensors."""
        histories = sum(stream.history.size_bytes for stream in self.streams)
        samples = sum(stream.instruments.held_bytes for stream in self.streams if stream.instruments)
        followed = self._follower.memory_bytes
        return self._seen.size_bytes + self._ring.size_bytes + histories + samples + followed

    def _mine(self) -> bool:
        return not self._closed and not self._busy and threading.get_ident() == self._thread

    @contextmanager
    def _ourselves(self) -> Iterator[None]:
        """What is called meanwhile is our own doing and not the script's."""
        in_backward, self._in_backward, self._busy = self._in_backward, False, True
        try:
            yield
        finally:
            self._in_backward, self._busy = in_backward, False

    def _dataset_number(self, iterator: Any) -> int:
        """Data sets are told apart by the order in which the script first reads from them."""
        dataset = getattr(iterator, "_dataset", None)
        return self._datasets.setdefault(id(dataset), len(self._datasets))

    def _refresh(self, stream: Stream) -> None:
        """Parameters may be added to an optimizer mid-run; names are looked up only when they change."""
        signature = tuple(
            id(p) for optimizer in stream.optimizers for group in optimizer.param_groups for p in group["params"]
        )
        if signature == stream.signature:
            return
        stream.parameters = optimizer_parameters(stream.optimizers)
        model = name_parameters(list(self._modules.called.values()), stream.parameters)
        if model.nameless or stream.model is None:
            found = find_model(stream.parameters)
            if found.roots:
                model = found
            if not self._modules.called:
                self._modules.watch_model(model)
        stream.model = model
        stream.tensor_names = tuple(model.names[id(parameter)] for parameter in stream.parameters)
        stream.together = ranks.trains_in_step(model.roots, stream.parameters)
        stream.signature = signature
        if model.nameless and not model.roots:
            self._note("no torch.nn.Module holds the parameters: they are named by their position in the optimizer")
        elif model.nameless:
            self._note(f"{model.nameless} parameters belong to no torch.nn.Module and are named by their position")

    def _is_bad_already(self, stream: Stream) -> bool:
        """Whether the step before was bad as well: a run that stays NaN is one incident, not one a step."""
        window = stream.history.recent()
        if not len(window):
            return False
        loss_bad = bool(window.present["loss"][-1]) and not math.isfinite(window.signals["loss"][-1])
        return loss_bad or not bool(np.isfinite(window.gradient_norms[-1]).all())

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)
            self._tell(f"note: {note}")

    def _tell_hand_written(self) -> None:
        if not self._told_hand_written:
            self._told_hand_written = True
            self._note(
                f"{self.backward_calls} backward passes and no torch.optim optimizer step: the weights are updated by "
                "hand, so nothing is recorded or guarded; `with watch.update():` around the update does both"
            )


def _scalar_outputs(output: Any) -> dict[int, tuple[Any, ...]]:
    """Graph node of each one-element output, and its place: what tells whether the model returns the loss itself."""
    found: dict[int, tuple[Any, ...]] = {}

    def walk(value: Any, path: tuple[Any, ...]) -> None:
        if isinstance(value, Tensor):
            if value.numel() == 1 and value.grad_fn is not None:
                found[int(value.grad_fn._sequence_nr())] = path
        elif isinstance(value, dict):
            for key, entry in value.items():
                walk(entry, (*path, key))
        elif isinstance(value, (list, tuple)):
            for key, entry in enumerate(value):
                walk(entry, (*path, key))

    walk(output, ())
    return found


def _as_tensors(roots: Any) -> list[Tensor]:
    found = roots if isinstance(roots, (tuple, list)) else [roots]
    return [root for root in found if isinstance(root, Tensor)]


def _interrupt(thread: int) -> None:
    """End a lap that does not come round: raise :class:`LapTooLong` in the training thread."""
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(LapTooLong))
