"""Runs a schedule of recorded steps inside a launched script, with changes applied.

The ordinary replay is the schedule 54, 55, ... Here recorded steps come in any order, some without their update, with
probes in between. As in a replay (``replay/engine.py``), the script first computes its own steps. Then the snapshot
overwrites its state, and loaders and model get the recorded data.

A probe runs in a copy of the process: forked after an update, it runs the loop once with the probe's batch and ends at
its gate, or where its backward begins (``early_loss``). So probes change no counter, generator or state of the script,
and cost little more than a forward.
If a process cannot be copied (a GPU), the probe is a loop turn with a refused update. ``stage.py`` shares processes and
supplies the :class:`Job`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.guarded_events import MISSING
from steadytrain.capture.step.gate import Measurement
from steadytrain.capture.step.input_recorder import MicroBatch, RandomState
from steadytrain.capture.step.observers import StepObserver
from steadytrain.capture.step.optimizer_streams import StepInProgress, Stream
from steadytrain.experiments.specs import OWN_TARGETS, Entry, ProbeSeen
from steadytrain.replay.own_steps import is_last_own_forward
from steadytrain.replay.recorded_steps import RecordedState, RecordedStep, RecordedSteps
from steadytrain.replay.state_restore import restore_gate, restore_state
from steadytrain.storage.tape_files import Recording
from steadytrain.trial_runs.changes import LiveChange
from steadytrain.trial_runs.early_loss import EarlyLoss
from steadytrain.trial_runs.fed_batches import FedBatches
from steadytrain.trial_runs.job import Job
from steadytrain.trial_runs.launched_script import CannotApplyError, Kept, Launched, drop_gradients
from steadytrain.trial_runs.process_copy import Measured, ProcessCopy, measure_in_copy
from steadytrain.trial_runs.recorded_calls import OTHER_CALLS, is_recorded_call, loss_is_of_model, recorded_arguments
from steadytrain.trial_runs.recorded_random import RecordedRandom
from steadytrain.trial_runs.trial_record import TrialRecord


class TrialRun(StepObserver):
    """Runs one job after the script's own steps.

    Args:
        recording: the tape, empty if there is none.
        begin: the step of the starting snapshot; None for the start of the script.
        own_steps: the number of steps that the script computes itself before.
        stage: called in the last own step, after its first forward. Returns the job, possibly in a fork of the process.
        copies: whether a probe may run in a fork of the process.
    """

    replays = True

    def __init__(
        self,
        recording: Recording,
        *,
        begin: int | None,
        own_steps: int,
        stage: Callable[[], Job],
        copies: bool,
    ) -> None:
        self._steps = RecordedSteps(recording)
        self._begin = begin
        self._snapshot = None if begin is None else recording.snapshot_after(begin)
        self._own_steps_wanted = own_steps
        self._own_steps = 0
        self._stage = stage
        self._copies = copies
        self.job: Job | None = None
        self.process = Launched()
        self._stream: Stream | None = None
        self._jumped = begin is None
        self._restored = False
        self._at = -1
        self._entry = Entry(None)
        self._recorded: RecordedStep | None = None
        self._call = 0
        self._update_due = False
        self._skipped = False
        self._kept: Kept | None = None
        self._refused: Kept | None = None
        self._shown = TrialRecord()
        self._fed = FedBatches(self._steps, begin=begin, own_steps=own_steps)
        self._random = RecordedRandom(self._steps)
        self._rounds_before = 0
        self._copy: ProcessCopy | None = None
        self._loss_inside = False
        self._early = EarlyLoss()
        if begin is None:
            self._take(stage())
            self._next_entry()

    @property
    def probing(self) -> bool:
        """Whether this process is the fork that runs a probe."""
        return self._copy is not None

    # -- batches ---------------------------------------------------------------------------------------------------

    def fetch_begins(self, dataset: int) -> Any:
        if not torch.is_grad_enabled() or (self._own_steps_wanted != 1 and not self.probing):
            return MISSING  # the script's own loader continues, so its epochs end as recorded: see fetched
        if self.job is None:
            return self._fed.read_ahead(dataset)
        if not self._jumped and self._fed.is_of_own_step(dataset):
            return MISSING
        batch = self._next_batch(dataset)
        if batch is MISSING and self._copy is not None and self._entry.step is not None and self._fed.is_fed(dataset):
            self._copy.leave("a probe's batch was not kept")
        return batch

    def fetched(self, dataset: int, batch: Any) -> Any:
        if not torch.is_grad_enabled():
            return MISSING
        self._fed.count(dataset)
        if self.job is None or (self._own_steps_wanted == 1 and not self.job.own_batches):
            return MISSING
        other = self._next_batch(dataset) if self._jumped else MISSING
        given = batch if other is MISSING else other
        for change in self.job.changes:
            given = change.fetched(self.process, self._entry.step, given)
        return MISSING if given is batch else given

    def _next_batch(self, dataset: int) -> Any:
        """The recorded batch for this fetch, with changes applied."""
        if self.job is None or self.job.own_batches:
            return MISSING
        batch = self._fed.next(dataset, keep_last=self.probing)  # a prefetching loader continues to request batches
        if batch is None or batch.value is MISSING:
            return MISSING
        value = batch.value
        for change in self.job.changes:
            value = change.fetched(self.process, batch.step, value)
        return value

    # -- a step forms ----------------------------------------------------------------------------------------------

    def call_begins(self, module: nn.Module, call: MicroBatch, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        if not self._jumped or self.job is None:
            return None
        if self._update_due:
            self._entry_over()  # an optimizer of the stream did not step
        if self._call == 0:
            self._step_begins(module)
        number = self._call
        self._call += 1
        given = self._recorded_arguments(number, call, args, kwargs)
        for change in self.job.changes:
            other = change.call(self.process, self._entry.step, number, *(given or (args, kwargs)))
            given = other if other is not None else given
        return given

    def _recorded_arguments(self, number: int, call: MicroBatch, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        step = self._recorded
        if step is None or self._rounds_before:
            return None
        if not is_recorded_call(step, number, call):
            self._shown.note(OTHER_CALLS)
            return None
        state = step.random(number, "random")
        if state is not None:
            state.restore()
        assert self.job is not None
        if self.job.own_batches or step.calls[number]["changed_after_use"]:
            return None
        return recorded_arguments(step, number, args, kwargs, loss_inside=self._loss_inside, note=self._shown.note)

    def forward_ended(self, call: MicroBatch | None, random: RandomState) -> None:
        if not self._jumped:
            if is_last_own_forward(call, self._own_steps, self._own_steps_wanted):
                if self.job is None:
                    self._take(self._stage())
                self._random.prepare(self._following(-1))
            return
        step, number = self._recorded, self._call - 1
        if call is None or step is None or number >= len(step.calls) - 1:
            following, now = self._following(self._at), self._entry.step
            as_recorded = following in (None, (now or 0) + 1) or self._random.evaluated_before(following)
            if now is not None and as_recorded:
                self._random.restore_after(step, number)
            else:
                self._random.prepare(following)
            return
        self._random.restore_after(step, number)

    def loss_seen(self, root: Tensor) -> None:
        loss = self._early.of(root)
        if self._copy is not None and self._early.is_loss and not self._rounds_before:
            self._copy.answer(loss)

    def gate(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        self._early.gate(measured.losses)
        self._stream = self._stream or stream
        if stream is not self._stream:
            self._shown.note("several optimizers alternate: the snapshots contain only the state of the first one")
            return
        self.process.stream, self.process.scalers = stream, self.scalers
        self.process.roots = list(stream.roots()) or self.process.roots
        self._loss_inside = loss_is_of_model(seen)
        if not self._jumped or self.job is None:
            return
        if not self._loss_inside and any(change.inputs_alone for change in self.job.changes):
            self._shown.note(OWN_TARGETS)
        if self._call == 0:
            self._step_begins(None)  # no module call marked the start of the step
        if seen.evaluations > 1:
            self._cannot("the optimizer evaluates its closure several times, which no tape records")
        loss = math.fsum(measured.losses) / len(measured.losses) if measured.losses else None
        if self._rounds_before:
            self._refuse()
        elif self._copy is not None:
            self._copy.answer(loss)
        elif self._entry.role == "train":
            self._gate_of_train(stream, measured, loss)
        else:
            if self._entry.role == "probe":
                self._shown.probes.append(ProbeSeen(self._at, self._entry.step, loss))
            self._refuse()
        self._update_due, self._skipped = True, measured.record.skipped or self.skips(measured)

    def skips(self, measured: Measurement) -> bool:
        step = self._recorded
        return step is not None and step.skips(measured) and self._steps.step(step.document["step"] + 1) is not None

    def let_go(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        """The script lets a batch go by itself, once all its recorded calls were made: that is its gate."""
        waits = self._recorded is not None and self._call < len(self._recorded.calls)
        if self._jumped and self.job is not None and not self._update_due and not waits:
            self.gate(stream, seen, measured)

    def _gate_of_train(self, stream: Stream, measured: Measurement, loss: float | None) -> None:
        assert self.job is not None
        self._shown.step(self._at, measured, loss)
        if self._recorded is not None:
            self._shown.compare(self._recorded, measured)
            # If other batches are fed, the learning-rate schedule still follows the run.
            before = sum(entry.role != "probe" for entry in self.job.spec.schedule[: self._at])
            due = self._steps.step((self._begin or 0) + 1 + before) or self._recorded
            restore_gate(due, stream)
        if measured.is_incident and not self.skips(measured):
            self.finish()
        if not measured.record.skipped and not measured.is_incident:
            self._change(lambda change: change.gate(self.process))
            self._shown.update_begins(stream.parameters)

    def _refuse(self) -> None:
        self._kept = self._kept or Kept(self.process)
        drop_gradients(self.process.parameters)

    def step_ended(self, stream: Stream, folder: Any) -> None:
        if stream is not self._stream:
            return
        if not self._jumped:
            self._own_steps += 1
            if self._own_steps < self._own_steps_wanted:
                return
            self._jumped = True
            self._update_due = self._skipped = False
            self._next_entry()
        elif self._skipped:
            self._entry_over()

    def updated(self, stream: Stream) -> None:
        if self._jumped and not self._restored and self.job is not None:
            self._change(lambda change: change.begin_functions(self.process))
        if stream is self._stream and self._update_due:
            self._entry_over()

    # -- what is done at each moment -------------------------------------------------------------------------------

    def _take(self, job: Job) -> None:
        self.job = job
        for entry in job.spec.schedule:
            if entry.step is not None and self._steps.step(entry.step) is None:
                self._cannot(f"step {entry.step} is not on the tape")
        self._rounds_before = max(self._rounds_before, self._fed.fill(job.spec.schedule, copies=self._copies))

    def _step_begins(self, module: nn.Module | None) -> None:
        assert self.job is not None
        process = self.process
        process.role, process.entry, process.trained = self._entry.role, self._at, len(self._shown.steps)
        if self.probing:
            process.role = "probe"
        if self._refused is not None:
            self._refused.restore_scalers()
            self._refused = None
        if not self._restored:
            self._restored = True
            self._restore(module)
            self._change(lambda change: change.begin_once(process))
        if self._rounds_before or process.role == "refused" or (process.role == "probe" and not self.probing):
            self._kept = Kept(process)
        self._change(lambda change: change.step_begins(process))

    def _restore(self, module: nn.Module | None) -> None:
        if self._snapshot is None:
            self.process.roots = [module] if module is not None else []
            return
        assert self._stream is not None
        wrong, notes = restore_state(RecordedState(self._snapshot), self._stream, list(self.scalers.values()))
        if wrong is not None:
            self._cannot(wrong)
        for note in notes:
            self._shown.note(note)

    def _change(self, what: Callable[[LiveChange], None]) -> None:
        assert self.job is not None
        try:
            for change in self.job.changes:
                what(change)
        except CannotApplyError as error:
            self._cannot(str(error))

    def _entry_over(self) -> None:
        """Moves on to the next entry after an update was applied, skipped or refused."""
        assert self.job is not None
        self._update_due = False
        self.process.undo_groups()
        if self._kept is not None:
            self._kept.restore()
            self._refused, self._kept = self._kept, None
        elif not self._skipped:
            self._change(lambda change: change.updated(self.process))
            if self._stream is not None:
                self._shown.update_ended(self._stream.parameters)
        if self._rounds_before:
            self._rounds_before -= 1
            self._call = 0
            self._random.prepare(self._entry.step)
            return
        self._next_entry()

    def _next_entry(self) -> None:
        assert self.job is not None
        schedule = self.job.spec.schedule
        self._at += 1
        while self._at < len(schedule) and schedule[self._at].role == "probe" and self._copies:
            if self._probe(schedule[self._at]):
                return  # the fork
            self._at += 1
        if self._at >= len(schedule):
            self.finish()
        self._enter(schedule[self._at])
        number = self._entry.step if self._begin is not None or self._at > 0 else None
        if number is not None and self._random.evaluated_before(number):
            self._random.prepare(number)

    def _enter(self, entry: Entry) -> None:
        self._entry, self._call = entry, 0
        self._recorded = None if entry.step is None else self._steps.step(entry.step)

    # -- random states ---------------------------------------------------------------------------------------------

    def _following(self, at: int) -> int | None:
        """The recorded step of the next entry that this process runs itself."""
        assert self.job is not None
        if self.probing:
            return None
        later = self.job.spec.schedule[at + 1 :]
        return next((entry.step for entry in later if not (entry.role == "probe" and self._copies)), None)

    # -- probes ----------------------------------------------------------------------------------------------------

    def _probe(self, entry: Entry) -> bool:
        """Measures ``entry`` in a fork. Returns True in the fork, which continues to its gate and ends there."""
        copied = measure_in_copy()
        if isinstance(copied, Measured):
            self._shown.probes.append(ProbeSeen(self._at, entry.step, copied.number))
            return False
        self._copy = copied
        self._enter(entry)
        if entry.step is not None:
            self._rounds_before = max(self._rounds_before, self._fed.fill_for_probe(entry.step))
        self._random.prepare(entry.step)
        return True

    # -- what comes out --------------------------------------------------------------------------------------------

    def _cannot(self, why: str) -> None:
        if self._copy is not None:
            self._copy.leave(why)
        assert self.job is not None
        self.job.end(self._shown.failed(self.job.spec, why))

    def finish(self, ended: str | None = None) -> None:
        """Reports the outcome after the schedule, a non-finite value, or (``ended``) the end of the script's loop."""
        assert self.job is not None
        if self._copy is not None:
            self._copy.leave("the loop was over before the probe's gate")
        if self.job.changes and not any(change.touched for change in self.job.changes):
            self._cannot(self.job.changes[0].nothing)
        if not self._shown.steps:
            self._cannot(f"{ended or 'the trial ended'} before its first step")
        job, self.job = self.job, None  # what the script does from here on belongs to no trial
        job.end(self._shown.outcome(job.spec, job.changes, ended))
