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

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.clipping import ClipArguments
from steadytrain.capture.hooks.fail_open import Guard, Tell
from steadytrain.capture.hooks.hooked_modules import HookedModules
from steadytrain.capture.hooks.model_discovery import find_model, name_parameters, optimizer_parameters
from steadytrain.capture.hooks.patches import MISSING, Patches
from steadytrain.capture.incident.context import Investigator, LoopRerun, Rehearsal
from steadytrain.capture.incident.incident import script_facts
from steadytrain.capture.incident.script_failure import keep_evidence
from steadytrain.capture.settings import Settings
from steadytrain.capture.snapshots.loaded_states import LoadedStates
from steadytrain.capture.snapshots.rewind import recorder_of
from steadytrain.capture.step.data_wait import DataWait
from steadytrain.capture.step.dataset_numbers import DatasetNumbers
from steadytrain.capture.step.gate import Measurement, measure
from steadytrain.capture.step.input_recorder import BatchRing, BufferKeeper, MicroBatch, RandomState, record_call
from steadytrain.capture.step.loss import loss_term, scalar_outputs
from steadytrain.capture.step.observers import CompositeObserver, StepObserver
from steadytrain.capture.step.optimizer_streams import StepInProgress, Stream
from steadytrain.capture.step.own_time import OwnTime
from steadytrain.capture.step.recording import Record
from steadytrain.capture.step.run_stopped import STOPPED_STATUS, RunStopped
from steadytrain.capture.step.sample_indices import DrawnSamples
from steadytrain.capture.step.step_batches import STEP_BATCHES, StepBatches
from steadytrain.capture.step.stopping import Stopping
from steadytrain.capture.step.stream_assignment import StreamAssignment
from steadytrain.capture.tensors.activations import Activations
from steadytrain.capture.tensors.gradient_scaling import Scaling
from steadytrain.capture.tensors.measurement_schedule import MeasurementSchedule
from steadytrain.capture.tensors.precision import logits_dtype, precision_facts
from steadytrain.core.model import Reading, Symptom
from steadytrain.grouping.stories import Story

MICRO_BATCHES_MAX = 256
MICRO_BYTES_MAX = 1 << 30
LOSSES_MAX = 4096
FETCHED_MAX = 64
HAND_WRITTEN_AFTER_BACKWARDS = 200


launched: Watcher | None = None
"""In a process that was launched to do recorded steps again: its watcher, which ``watch`` in the script gets."""


class Watcher:
    """Follows one process's training. ``close`` takes every patch and hook out again."""

    def __init__(
        self,
        settings: Settings,
        *,
        tell: Tell,
        record: Record,
        investigator: Investigator | None = None,
        rehearsal: Rehearsal | None = None,
        observer: StepObserver | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.guard = Guard(tell)
        self.incidents: list[Path] = []
        self.backward_calls = 0
        self.stopped: RunStopped | None = None
        self.notes: list[str] = []
        self.tell = tell
        self.recorder = record(settings, self.guard, tell)
        self.recorder.recording = rehearsal is None and not (observer and observer.replays)
        self.investigator = investigator
        self._rehearsal = rehearsal
        self._clock = clock
        self._thread = threading.get_ident()
        self._process = os.getpid()
        self._closed = False
        self.datasets = DatasetNumbers()
        self.modules = HookedModules(self)
        self.leading = StreamAssignment(self.recorder.begin_stream, self.modules, self._note)
        self._calls: list[tuple[nn.Module, MicroBatch | None]] = []
        self.seen = StepInProgress()
        self._scaling = Scaling()
        self.scalers = self._scaling.scalers
        self.observer = observer or recorder_of(settings, self._note, recording=rehearsal is None)
        self.observer.scalers = self.scalers
        self.symptom_incidents = self.recorder.incidents(self.observer, self.incidents.append)
        self._stopping = Stopping(self)
        self._scaler_step: tuple[int, bool] | None = None
        self._own_time = OwnTime()
        self._activations = Activations(self.guard, in_graph=settings.in_graph, own_time=self._own_time)
        self._data_wait = DataWait()
        self.draws = DrawnSamples()
        self._logits: str | None = None
        self._told_precision = False
        self.ring = BatchRing()
        self.buffers = BufferKeeper()
        self._random_after: RandomState | None = None
        self._in_backward = False
        self._saw_loss = False
        self._busy = False
        self.step_batches: StepBatches | None = None
        self._told_hand_written = False
        self._loads = LoadedStates(self.guard, self._note, self.set_fact)
        self._patches = Patches(self)

    def follow(self, guest: StepObserver) -> None:
        """One more that is told of every step, and changes nothing."""
        self.observer = CompositeObserver(self.observer, guest)

    # -- what the script does --------------------------------------------------------------------------------------

    def optimizer_made(self, optimizer: torch.optim.Optimizer) -> None:
        if self._mine():
            with self.guard.part("letting go of earlier models"):
                self.leading.loosen(lambda stream: script_facts(stream, list(stream.roots())))
                self._release_done()
            with self.guard.part("finding the model"):
                self.modules.watch_model(find_model(optimizer_parameters([optimizer])))

    def _release_done(self) -> None:
        """Hold nothing any more of models that the script has let go of."""
        for stream in self.leading.take_done():
            self.ring.release(list(stream.roots()))
            self.buffers.release()
            self.observer.stream_done(stream)
            stream.release()

    def watch_model(self, model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
        """A model, and an optimizer if there is one, that are there already."""
        if optimizer is not None:
            self.optimizer_made(optimizer)
        with self.guard.part("watching the model"):
            parameters = optimizer_parameters([optimizer]) if optimizer is not None else list(model.parameters())
            self.modules.watch_model(name_parameters([model], parameters))

    def loss_given(self, loss: Tensor) -> None:
        """The script tells its loss itself, before an update that it writes itself."""
        if self._mine() and self._rerun is None:
            with self.guard.part("reading the loss"):
                self.seen.losses[:] = [loss_term(loss)]
                self._saw_loss = True

    def set_fact(self, name: str, value: Any) -> None:
        """One more fact of the run, kept until there is a run folder."""
        if not self._closed:
            self.recorder.set_fact(name, value)

    def load_watch(self) -> LoadedStates | None:
        return self._loads if self._mine() and self._rerun is None and self._rehearsal is None else None

    def saving(self, optimizer: torch.optim.Optimizer) -> None:
        """The script asks an optimizer for its state: of the first one, a card of this moment is written."""
        stream = self.leading.stream_of(optimizer)
        if stream is None or stream is not self.streams[0] or optimizer is not stream.optimizers[0]:
            return
        if self.load_watch() is not None and self.recorder.recording and stream.step and stream.model is not None:
            with self.guard.part("noting what is saved"), self.aside():
                self._loads.save(
                    self.recorder.begin().path,
                    run=self.settings.run_name,
                    step=stream.step,
                    roots=list(stream.roots()),
                    optimizer=optimizer,
                    names=stream.model.names,
                    scaler=next(iter(self.scalers.values()), None),
                )

    def compile_called(self, subject: Any, result: Any, how: dict[str, Any]) -> None:
        if not self._mine():
            return
        with self.guard.part("watching compiled code"):
            self._activations.compile_called(subject, how)
            self.modules.compile_called(subject, result)

    def fetch_begins(self, iterator: Any) -> Any:
        if not self._mine():
            return MISSING
        batch = MISSING
        if self._rerun is None:
            self._data_wait.begins(iterator)
            with self.guard.part("following the data loader"):
                batch = self.observer.fetch_begins(self.datasets.number_of(iterator))
            return batch  # noqa: RET504 (as below)
        with self.guard.part("one more lap"):
            batch = self._rerun.fetch(self.datasets.number_of(iterator))
        return batch  # noqa: RET504 (a guarded part may end without it)

    def samples_drawn(self, iterator: Any, indices: Any) -> None:
        if self._mine() and self._rerun is None:
            with self.guard.part("following the samples"):
                self.draws.drawn(iterator, indices)

    def fetch_ends(self, iterator: Any, batch: Any) -> Any:
        if not self._mine():
            return MISSING
        self._data_wait.ends(iterator)
        if self._rerun is None:
            with self.guard.part("following the samples"):
                samples = self.draws.given(iterator, batch)
                if samples is not None:
                    self.observer.drawn(samples)
        if len(self.seen.fetched) < FETCHED_MAX:
            self.seen.fetched.append((self.datasets.number_of(iterator), batch))
        other = MISSING
        with self.guard.part("recording what was fetched"):
            other = self.observer.fetched(self.datasets.number_of(iterator), batch)
        return other  # noqa: RET504 (as above)

    def forward_begins(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        if not self._mine() or self._in_backward:
            return None
        outermost, training = not self._calls, torch.is_grad_enabled()
        self.modules.note_call(module, outermost=outermost)
        call: MicroBatch | None = None
        changed = None
        if outermost and self._rerun is None:
            with self._own_time, self.guard.part("keeping the buffers"):
                self.buffers.keep(module)
        if outermost and training:
            with self._own_time, self.guard.part("letting go of earlier models"):
                self._release_done()
            with self._own_time, self.guard.part("recording the batch"):
                if self._rerun is not None:
                    changed = self._rerun.forward_begins(module, args, kwargs)
                else:
                    if self.step_batches is not None and (batch := self.step_batches.take()) is not MISSING:
                        self.observer.fetched(STEP_BATCHES, batch)
                    self.draws.called()
                    call = record_call(module, args, kwargs, self._random_after)
                    changed = self.observer.call_begins(module, call, args, kwargs)
        self._calls.append((module, call))
        return changed

    def forward_ends(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if not self._mine() or self._in_backward or not self._calls:
            return
        while self._calls:  # a call that never came back (an exception without always_call) is dropped on the way
            called, call = self._calls.pop()
            if called is module:
                break
        if self._activations.armed and self._rerun is None:
            with self._own_time:
                self._activations.saw(module, output)
        if self._calls:
            return
        with self.guard.part("recording the batch"):
            if call is not None:
                self.modules.note_training_call(module)
                call.scalar_outputs.update(scalar_outputs(output))
                self._logits = self._logits or logits_dtype(output)
                if len(self.seen.micro_batches) < MICRO_BATCHES_MAX and self.seen.size_bytes < MICRO_BYTES_MAX:
                    self.seen.micro_batches.append(call)
            elif self._rerun is not None and not torch.is_grad_enabled():
                self._rerun.other_forward_ends()
            if self._rerun is None:
                self._random_after = RandomState.take()
                self.observer.forward_ended(call, self._random_after)

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
        self.seen.backward_begins()
        with self.guard.part("following backward"):
            self.observer.backward_begins()
        with self.guard.part("reading the loss"):
            scalars = [root for root in _as_tensors(roots) if root.numel() == 1 and root.is_floating_point()]
            if self._rerun is not None and scalars:
                self._rerun.backward_begins(scalars[0])
            elif accumulates and len(scalars) == 1 and len(self.seen.losses) < LOSSES_MAX:
                self.seen.losses.append(loss_term(scalars[0]))
                self._saw_loss = True
                self.observer.loss_seen(scalars[0])
                self._stopping.look_at_loss(scalars[0])
            if not self.streams and self.backward_calls >= HAND_WRITTEN_AFTER_BACKWARDS:
                self._tell_hand_written()
                self._forget_step()
        return True

    def backward_ends(self) -> None:
        self._in_backward = False

    def gradients_zeroed(self, owner: torch.optim.Optimizer | nn.Module) -> None:
        """What was accumulated is thrown away: a script that skips a bad step by itself is left alone."""
        if not self._mine() or self._rerun is not None or len(self.streams) != 1:
            return
        stream = self.streams[0]
        with self.guard.part("forgetting gradients that are thrown away"):
            if stream.optimizers != [owner] and (stream.model is None or (owner,) != stream.model.roots):
                return
            self.seen.gradients_zeroed()

    def scaler_scales(self, scaler: Any) -> None:
        if self._mine() and scaler.is_enabled():  # one that is not has no scale, and scales nothing
            self.scalers[id(scaler)] = scaler

    def scaler_step_begins(self, scaler: Any, optimizer: torch.optim.Optimizer) -> None:
        if self._mine():
            self._scaler_step = (id(optimizer), False)
            with self.guard.part("following the gradient scaler"):
                self._scaling.scaler_step_begins(scaler, optimizer)
                if scaler.is_enabled():
                    self.recorder.set_fact("loss_scale_growth_interval", scaler.get_growth_interval())

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
        if (
            rerun := self._rerun
        ) is not None:  # the lap's gradients made the scaler skip: this is as far as the lap comes
            raise self._stopping.end_rerun(rerun.gate)
        with self.guard.part("recording a skipped step"):
            stream = self._lead(optimizer, skipped=True)
            if stream is not None:
                stream.pending = self._measure(stream, optimizer, skipped=True)
                self.observer.gate(stream, self.seen, stream.pending)
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
        if not self._mine() or self._rerun is not None:
            return original(parameters, *args, **kwargs)
        clipping, reading = self.seen.clipping, None
        with self.guard.part("reading the gradients before clipping"):
            tensors = [parameters] if isinstance(parameters, Tensor) else parameters
            arguments = read(args, kwargs)
            self._scaling.clip_begins(tensors, self.scalers.values(), limit=arguments.limit)
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
                self.buffers.restore()
            raise self.stopped
        if (rerun := self._rerun) is not None:
            raise self._stopping.end_rerun(rerun.gate)
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)  # args[0] is the optimizer itself
        if not callable(closure):
            self._gate(optimizer, can_rerun=True)
            return None

        micro_batches, losses = len(self.seen.micro_batches), len(self.seen.losses)

        def watched_closure() -> Any:
            # LBFGS evaluates several times in a step, and the last stands for it. What was accumulated before stays.
            del self.seen.micro_batches[micro_batches:], self.seen.losses[losses:]
            self.seen.evaluations += 1
            loss = closure()
            self._gate(optimizer, can_rerun=False)
            return loss

        if "closure" in kwargs:
            return args, {**kwargs, "closure": watched_closure}
        return (args[0], watched_closure, *args[2:]), kwargs

    def step_ends(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        stream = self.leading.stream_of(optimizer)
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
            self.instruments(stream).after_update(stream, stream.step)
            self.observer.updated(stream)

    # -- the gate --------------------------------------------------------------------------------------------------

    def _gate(self, optimizer: torch.optim.Optimizer, *, can_rerun: bool) -> None:
        """Look at the loss and the gradients that ``optimizer`` is about to apply; may raise :class:`RunStopped`."""
        looked: list[tuple[Stream, Measurement]] = []
        whole = False
        with self.guard.part("the gate"):
            looked += self._look(optimizer, can_rerun=can_rerun)
            whole = True
        if not whole:
            self._forget_step()  # or the batches of every step to come would pile up
        for stream, measured in looked:
            if stream.pending is not None and stream.pending.committed:
                continue  # a closure is evaluated again, in a step that is on record as an incident
            stream.pending = measured
            with self.guard.part("the tape at the gate"):
                self.observer.gate(stream, self.seen, measured)
            if not measured.is_incident or self._rehearsal is not None or self.observer.replays:
                continue
            if self.settings.policy == "observe":
                with self.guard.part("writing an incident"):
                    self._stopping.observe(stream, measured)
                continue
            stream.pending = None
            try:
                self._stopping.stop(stream, optimizer, measured, can_rerun=can_rerun)
            except Exception as error:  # the update must not be applied, whatever of ours broke on the way
                self.guard.report("handling the incident", error)
                self.stopped = RunStopped(f"steadytrain refused the update of step {measured.record.step}")
                raise self.stopped from None

    def _look(self, optimizer: torch.optim.Optimizer, *, can_rerun: bool) -> Iterator[tuple[Stream, Measurement]]:
        """The stream and the measurement of this step, if ``optimizer`` leads it."""
        stream = self._lead(optimizer)
        if stream is None:
            return
        if self._rehearsal is not None and self._rehearsal.begins_after(stream.step + 1):
            self._stopping.rehearse(self._rehearsal, stream, optimizer, can_rerun=can_rerun)
            return
        yield stream, self._measure(stream, optimizer, skipped=False)

    def _lead(self, optimizer: torch.optim.Optimizer, *, skipped: bool = False) -> Stream | None:
        stream, self.seen = self.leading.lead(optimizer, self.seen, saw_loss=self._saw_loss, skipped=skipped)
        return stream

    def _measure(self, stream: Stream, optimizer: torch.optim.Optimizer, *, skipped: bool) -> Measurement:
        with self._own_time:
            self._updated(stream)
            self.leading.refresh(stream)
        instruments, step = self.instruments(stream), stream.step + 1
        self.seen.waited_s += self._data_wait.take()
        measured = measure(
            stream,
            optimizer,
            self.seen,
            self._scaling,
            skipped=skipped,
            weigh=instruments.weighs(step),
            time_s=self._clock(),
            own_s=self._own_time.so_far(),
        )
        if not skipped:
            instruments.before_update(stream, step, measured.scale)
        return measured

    def instruments(self, stream: Stream) -> MeasurementSchedule:
        if stream.instruments is None:

            def record(step: int, reading: Reading) -> None:
                self.recorder.read(stream, step, self._clock(), reading)

            first = self.streams[0]
            activations = self._activations if stream is first else None
            others = {id(root) for root in stream.roots()} - {id(root) for root in first.roots()}
            if others and self.settings.level.modules_every is not None:
                self._note(f"outputs of modules are looked at in steps of {first.name} only, for the models it updates")
            stream.instruments = MeasurementSchedule(
                self.settings.level,
                activations,
                self.guard,
                record,
                self._note,
                self.recorder.set_fact,
                self.recorder.saw_logits,
            )
        return stream.instruments

    # -- a step ends -----------------------------------------------------------------------------------------------

    def _finish_step(self, stream: Stream) -> None:
        measured, stream.pending = stream.pending, None
        assert measured is not None
        batches, stream.step = self.seen.micro_batches, measured.record.step
        self.leading.stepped(stream, self.seen)
        self._forget_step()
        self.ring.add(stream.step, batches)
        if len(self.streams) > 1:
            self.recorder.set_fact("optimizers_in_turn", len(self.streams))
        self.recorder.commit(stream, measured)
        with self.guard.part("keeping the tape of the step"):
            self.observer.step_ended(stream, self.recorder.begin().path if self.recorder.recording else None)
        instruments = self.instruments(stream)
        if measured.record.skipped:
            instruments.skip_update()
        else:
            stream.updating = True
        found = self.recorder.look(stream)
        self.recorder.tell_symptoms(found)
        instruments.raised(found, stream.step)
        self.symptom_incidents.looked(stream, found)
        if stream.own_steps == 1:
            self.modules.settle()
        # The optimizer has its state after the first update; of a model found in the first step no call was seen.
        if not self._told_precision and not measured.record.skipped and (batches or stream.own_steps > 1):
            self._told_precision = True
            with self.guard.part("recording the number formats"):
                autocast = batches[-1].autocast if batches else None
                facts = precision_facts(stream.parameters, stream.optimizers, autocast=autocast, logits=self._logits)
                self.recorder.set_fact("precision", facts)

    def _forget_step(self) -> None:
        self.seen = StepInProgress()
        self._own_time.restart()
        self.buffers.step_ends()

    # -- books -----------------------------------------------------------------------------------------------------

    def script_failed(self, error: BaseException) -> None:
        """The script is about to end by ``error``: keep what tells why memory ran out or ranks lost each other."""
        if self._closed or os.getpid() != self._process or not self.recorder.recording:
            return
        with self.guard.part("keeping evidence of the failure"):
            keep_evidence(self, error)

    def abandon_rerun(self, why: str) -> None:
        """The script ended, failed or was interrupted during the lap: settle the incident without it."""
        self._stopping.abandon_rerun(why)

    def close(self, *, ended: str, exit_status: int | None = None) -> None:
        """Take everything out and write how the run ended. Idempotent."""
        if self._closed or os.getpid() != self._process:
            return
        self.abandon_rerun("the script ended before it reached the optimizer again")
        self._closed = True
        self._patches.remove()
        self.modules.remove()
        self._activations.remove()
        if self.stopped is None:
            with self.guard.part("the last look of the detectors"):
                for stream in self.streams:
                    found = self.recorder.detect(stream)
                    self.recorder.tell_symptoms(found)
                    self.symptom_incidents.looked(stream, found)
        with self.guard.part("freezing symptoms at the end"):
            self.symptom_incidents.close(self.streams if self.stopped is None else ())
        for stream in self.streams:
            self.instruments(stream).finish()
        with self.guard.part("closing the tape"):
            grave = any(symptom.severity == "critical" for symptom in self.symptoms)
            self.observer.close(finished=ended == "finished" or self.stopped is not None, grave=grave)
        with self.guard.part("closing the run folder"):
            facts = {"ended": ended, "exit_status": exit_status, "notes": self.notes}
            if self._scaling.clipped_before_unscaling:
                facts["clipped_before_unscaling"] = self._scaling.clipped_before_unscaling
            if self.stopped is not None:
                facts |= {"ended": "stopped", "exit_status": STOPPED_STATUS}
            self.recorder.close(self.streams, facts)

    def forget(self) -> None:
        """In a forked child: this process does not train for us; touch nothing that the parent owns."""
        self._closed = True
        self.recorder.forget()
        self.observer.forget()
        self.symptom_incidents.forget()

    @property
    def detector_names(self) -> list[str]:
        """The detectors that look, by the name that `explain` knows."""
        return self.recorder.detector_names

    def evaluated(self, metrics: Mapping[str, float]) -> None:
        """Numbers that were measured beside training, after the last step of the first stream."""
        for stream in self.streams[:1]:
            stream.history.evaluated(stream.step, metrics)

    @property
    def has_folder(self) -> bool:
        """Whether this process has written into the run folder."""
        return self.recorder.begun

    @property
    def stories(self) -> Sequence[Story]:
        """The symptoms of each stream that belong together, in order; told when the run is closed."""
        return self.recorder.stories

    @property
    def symptoms(self) -> Collection[Symptom]:
        """What was raised so far."""
        return self.recorder.symptoms.values()

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

    @property
    def streams(self) -> list[Stream]:
        """One for each optimizer, or for several that step together; the first is the recorded one."""
        return self.leading.streams

    @property
    def _rerun(self) -> LoopRerun | None:
        return self._stopping.rerun

    def _mine(self) -> bool:
        return not self._closed and not self._busy and threading.get_ident() == self._thread

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is called meanwhile is our own doing and not the script's."""
        in_backward, self._in_backward, self._busy = self._in_backward, False, True
        try:
            yield
        finally:
            self._in_backward, self._busy = in_backward, False

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)
            self.tell(f"note: {note}")

    def _tell_hand_written(self) -> None:
        if not self._told_hand_written:
            self._told_hand_written = True
            self._note(
                f"{self.backward_calls} backward passes and no torch.optim optimizer step: the weights are updated by "
                "hand, so nothing is recorded or guarded; `with watch.update():` around the update does both"
            )


def _as_tensors(roots: Any) -> list[Tensor]:
    found = roots if isinstance(roots, (tuple, list)) else [roots]
    return [root for root in found if isinstance(root, Tensor)]
