"""Runs a schedule of recorded steps inside a launched script, with changes applied.

The ordinary replay is the schedule 54, 55, ... Here recorded steps come in any order, some without their update, with
probes in between. As in a replay (``replay/engine.py``), the script first computes its own steps. Then the snapshot
overwrites its state, and loaders and model get the recorded data.

A probe runs in a copy of the process: forked after an update, it runs the loop once with the probe's batch and ends at
its gate, or where its backward begins (``early_loss``). So probes change no counter, generator or state of the script,
and cost little more than a forward. If a process cannot be copied (a GPU), the probe is a turn whose update is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.guarded_events import MISSING
from steadytrain.capture.step.gate import Measurement
from steadytrain.capture.step.input_recorder import MicroBatch, RandomState
from steadytrain.capture.step.observers import StepObserver
from steadytrain.capture.step.optimizer_streams import StepInProgress, Stream
from steadytrain.experiments.specs import OWN_TARGETS, Entry, ProbeSeen
from steadytrain.replay.other_optimizers import OtherOptimizers
from steadytrain.replay.own_steps import is_last_own_forward
from steadytrain.replay.recorded_random import RecordedRandom
from steadytrain.replay.recorded_steps import RecordedState, RecordedStep, RecordedSteps
from steadytrain.replay.state_restore import restore_gate, restore_other_gate, restore_state
from steadytrain.storage.tape_files import Recording
from steadytrain.trial_runs.changes import LiveChange
from steadytrain.trial_runs.early_loss import EarlyLoss
from steadytrain.trial_runs.fed_batches import FedBatches
from steadytrain.trial_runs.job import Job
from steadytrain.trial_runs.launched_script import CannotApplyError, Kept, Launched
from steadytrain.trial_runs.process_copy import Measured, ProcessCopy, measure_in_copy
from steadytrain.trial_runs.recorded_calls import fed_arguments, loss_is_of_model
from steadytrain.trial_runs.trial_record import TrialRecord


class TrialRun(StepObserver):
    """Runs one job after the script's own steps.

    Args:
        recording: the tape, empty if there is none.
        begin: the step of the starting snapshot; None for the start of the script.
        own_steps: the number of steps that the script computes itself before.
        stage: called in the last own step after its first forward, or before the script's first step. Returns the job,
            possibly in a fork of the process.
        copies: whether a probe may run in a fork of the process. It may be changed before the job is returned.
        stream: the name of the optimizer whose steps are counted.
        whole_lead: whether the own steps are all before ``begin``: the script evaluates where the recorded run did.
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
        stream: str = "main",
        whole_lead: bool = False,
    ) -> None:
        self._steps = RecordedSteps(recording)
        self._begin, self.from_start = begin, begin is None
        self._snapshot = None if begin is None else recording.snapshot_after(begin)
        self._own_steps_wanted, self._own_steps, self._own_calls = own_steps, 0, 0
        self._stage, self.copies = stage, copies
        self.job: Job | None = None
        self.process = Launched()
        self._stream: Stream | None = None
        self._whole_lead, self._others = whole_lead or begin is None, OtherOptimizers(stream)
        self._jumped, self._restored, self._at, self._entry = begin is None, False, -1, Entry(None)
        self._recorded: RecordedStep | None = None
        self._call, self._update_due, self._skipped = 0, False, False
        self._kept: Kept | None = None
        self._refused: Kept | None = None
        self.shown = TrialRecord()
        self._fed = FedBatches(self._steps, begin=begin, own_steps=own_steps)
        self._random = RecordedRandom(self._steps)
        self._rounds_before = 0
        self._copy: ProcessCopy | None = None
        self._loss_inside, self._early = False, EarlyLoss()

    @property
    def probing(self) -> bool:
        """Whether this process is the fork that runs a probe."""
        return self._copy is not None

    # -- batches ---------------------------------------------------------------------------------------------------

    def fetch_begins(self, dataset: int) -> Any:
        if torch.is_grad_enabled():
            self._begin_at_start()
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
        given = self.job.changed(self.process, self._entry.step, batch if other is MISSING else other)
        self.shown.batch = given
        return MISSING if given is batch else given

    def _next_batch(self, dataset: int) -> Any:
        """The recorded batch for this fetch, with changes applied."""
        if self.job is None or self.job.own_batches:
            return MISSING
        batch = self._fed.next(dataset, keep_last=self.probing)  # a prefetching loader continues to request batches
        if batch is None or batch.value is MISSING:
            return MISSING
        self.shown.batch = self.job.changed(self.process, batch.step, batch.value)
        return self.shown.batch

    # -- a step forms ----------------------------------------------------------------------------------------------

    def call_begins(self, module: nn.Module, call: MicroBatch, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        self._begin_at_start()
        if not self._jumped or self.job is None:
            return None
        if self._update_due:
            self._entry_over()  # an optimizer of the stream did not step
        if self._call == 0:
            self._step_begins(module)
        number = self._call
        self._call += 1
        given, own, inside = None, self.job.own_batches, self._loss_inside
        if self._recorded is not None and not self._rounds_before:
            feed = partial(fed_arguments, own=own, loss_inside=inside, note=self.shown.note)
            given = feed(self._recorded, number, call, args, kwargs)
        for change in self.job.changes:
            other = change.call(self.process, self._entry.step, number, *(given or (args, kwargs)))
            given = other if other is not None else given
        return given

    def forward_ended(self, call: MicroBatch | None, random: RandomState) -> None:
        if not self._jumped:
            self._own_calls += call is not None
            if is_last_own_forward(call, self._own_steps, self._own_steps_wanted):
                if self.job is None:
                    self._take(self._stage())
                goes_on = self._whole_lead and self._following(-1) == (self._begin or 0) + 1
                self._random.start(self._following(-1), goes_on=goes_on, calls=self._own_calls if call else 0)
            return
        step, number = self._recorded, self._call - 1
        if call is None and self._whole_lead and not self.probing and not self._rounds_before:
            return
        if call is None or step is None or number >= len(step.calls) - 1:
            self._random.go_on(step, number, self._entry.step, self._following(self._at))
            return
        self._random.restore_after(step, number)

    def loss_seen(self, root: Tensor) -> None:
        loss = self._early.of(root)
        self.shown.backward_begins(self.process.role if self._jumped else "", self.process.parameters)
        if self._copy is not None and self._early.is_loss and not self._rounds_before and not self._others.streams:
            self._copy.answer(loss)

    def gate(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        self.process.functions.aside = True  # a change of functions is one of the model and its loss, not of an update
        loss = self._early.gate(measured.losses)
        if self._others.meet(stream):
            self._other_gate(stream, measured)
            return
        self._stream = stream
        self.process.stream, self.process.scalers = stream, self.scalers
        self.process.roots = list(stream.roots()) or self.process.roots
        self._loss_inside = loss_is_of_model(seen)
        self._begin_at_start()
        if not self._jumped or self.job is None:
            return
        if not self._loss_inside and any(change.inputs_alone for change in self.job.changes):
            self.shown.note(OWN_TARGETS)
        if self._call == 0:
            self._step_begins(None)  # no module call marked the start of the step
        if seen.evaluations > 1:
            self._cannot("the optimizer evaluates its closure several times, which no tape records")
        if self._rounds_before:
            self._refuse(stream)
        elif self._copy is not None:
            self._copy.answer(loss)
        elif self._entry.role == "train":
            self._gate_of_train(stream, measured, loss)
        else:
            if self._entry.role == "probe":
                self.shown.probes.append(ProbeSeen(self._at, self._entry.step, loss))
            self._refuse(stream)
        self._update_due, self._skipped = True, measured.record.skipped or self.skips(measured)

    def _other_gate(self, stream: Stream, measured: Measurement) -> None:
        """Another optimizer is about to update. In an entry whose update is refused its update is refused too."""
        self.process.others = self._others.streams
        if not self._jumped or self.job is None or self._copy is not None:
            return
        update = self._others.next_update(self._recorded, stream)
        if self._rounds_before or self._entry.role != "train":
            self._refuse(stream)
        elif update is not None and self._restored:
            self.shown.compare_other(update, measured)
            restore_other_gate(update, stream)

    def skips(self, measured: Measurement) -> bool:
        step = self._recorded
        if self._others.at_gate:
            return self._others.refused(step)
        return step is not None and step.skips(measured) and self._steps.step(step.document["step"] + 1) is not None

    def let_go(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        """The script lets a batch go by itself, once all its recorded calls were made: that is its gate."""
        waits = self._recorded is not None and self._call < len(self._recorded.calls)
        if self._jumped and self.job is not None and not self._update_due and not waits:
            self.gate(stream, seen, measured)

    def _gate_of_train(self, stream: Stream, measured: Measurement, loss: float | None) -> None:
        assert self.job is not None
        self.shown.step(self._at, measured, loss, list(stream.roots()))
        if self._recorded is not None:
            self.shown.compare(self._recorded, measured)
            # If other batches are fed, the learning-rate schedule still follows the run.
            due = (self._begin or 0) + 1 + self.job.spec.trained_before(self._at)
            restore_gate(self._steps.step(due) or self._recorded, stream)
        if measured.is_incident and not self.skips(measured):
            self.finish()
        if not measured.record.skipped and not measured.is_incident:
            self._change(lambda change: change.gate(self.process))
            self.shown.update_begins(stream.parameters)

    def _refuse(self, stream: Stream) -> None:
        self._kept = self._kept or Kept(self.process)
        self.process.drop_gradients(stream.parameters)

    def step_ended(self, stream: Stream, folder: Any) -> None:
        if stream is not self._stream:
            return
        if not self._jumped:
            self.calls_forgotten()
        elif self._skipped:
            self._entry_over()

    def calls_forgotten(self) -> None:
        self._own_steps, self._own_calls = self._own_steps + 1, 0
        if self._own_steps >= self._own_steps_wanted and not self._jumped:
            self._jumped, self._update_due, self._skipped = True, False, False
            if self.job is None:  # no call of the model that is trained: its gradients are those of copies
                self._take(self._stage())
            self._next_entry()

    def updated(self, stream: Stream) -> None:
        self.process.functions.aside = False
        if self._jumped and not self._restored and self.job is not None:
            self._change(lambda change: change.begin_functions(self.process))
        if stream is self._stream and self._update_due:
            self._entry_over()

    # -- what is done at each moment -------------------------------------------------------------------------------

    def _begin_at_start(self) -> None:
        """Takes the job of a trial from the script's start, once its set-up is over: what it uses first is a step's."""
        if self._begin is None and self._at < 0 and self.job is None:
            self._take(self._stage())
            self._next_entry()

    def _take(self, job: Job) -> None:
        self.job = job
        for entry in job.spec.schedule:
            if entry.step is not None and self._steps.step(entry.step) is None:
                self._cannot(f"step {entry.step} is not on the tape")
        self._rounds_before = max(self._rounds_before, self._fed.fill(job.spec.schedule, copies=self.copies))

    def _step_begins(self, module: nn.Module | None) -> None:
        assert self.job is not None
        process = self.process
        process.role, process.entry = "probe" if self.probing else self._entry.role, self._at
        process.trained = len(self.shown.steps)
        if self._refused is not None:
            self._refused.restore_scalers()
            self._refused = None
        if not self._restored:
            self._restored = True
            self._restore(module)
            self._change(lambda change: change.begin_once(process))
        if self._rounds_before or process.role == "refused" or (process.role == "probe" and not self.probing):
            self._kept = self._kept or Kept(process)
        self._change(lambda change: change.step_begins(process))

    def _restore(self, module: nn.Module | None) -> None:
        if self._snapshot is None:
            self.process.roots = [module] if module is not None else []
            return
        assert self._stream is not None
        state, scalers = RecordedState(self._snapshot), list(self.scalers.values())
        wrong, notes = restore_state(state, self._stream, scalers, self._others.streams)
        if wrong is not None:
            self._cannot(wrong)
        self.shown.note(*notes)

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
        self._update_due = self.process.functions.aside = False
        self.process.undo_groups()
        if self._kept is not None:
            self._kept.restore()
            self._refused, self._kept = self._kept, None
        elif not self._skipped:
            self._change(lambda change: change.updated(self.process))
            if self._stream is not None:
                self.shown.update_ended(self._stream.parameters)
        if self._rounds_before:
            self._rounds_before -= 1
            self._call = 0
            self._random.prepare(self._entry.step)
            return
        self._next_entry()

    def _next_entry(self) -> None:
        assert self.job is not None
        schedule = self.job.spec.schedule
        before = self._entry.step if self._at >= 0 else self._begin
        self._at += 1
        # Without copies, the first probes would use up the data of the first step.
        lost = not self.copies and not self.shown.steps and self._fed.draws_first()
        while self._at < len(schedule) and schedule[self._at].role == "probe" and (self.copies or lost):
            if not lost and self._probe(schedule[self._at]):
                return  # the fork
            self._at += 1
        if self._at >= len(schedule):
            self.finish()
        self._enter(schedule[self._at])
        number = self._entry.step if self._begin is not None or self._at > 0 else None
        goes_on = self._whole_lead and before is not None and number == before + 1
        if number is not None and not goes_on and self._random.evaluated_before(number):
            self._random.prepare(number)

    def _enter(self, entry: Entry) -> None:
        self._entry, self._call, self._others.updates = entry, 0, 0
        self._recorded = None if entry.step is None else self._steps.step(entry.step)

    def _following(self, at: int) -> int | None:
        assert self.job is not None
        return None if self.probing else self.job.spec.step_after(at, copies=self.copies)

    def _probe(self, entry: Entry) -> bool:
        """Measures ``entry`` in a fork. Returns True in the fork, which continues to its gate and ends there."""
        copied = measure_in_copy()
        if isinstance(copied, Measured):
            self.shown.probes.append(ProbeSeen(self._at, entry.step, copied.number))
            return False
        self._copy = copied
        self._enter(entry)
        if entry.step is not None:
            rounds = self._fed.fill_for_probe(entry.step, is_first=not self.shown.steps)
            self._rounds_before = max(self._rounds_before, rounds)
        self._random.prepare(entry.step)
        return True

    # -- what comes out --------------------------------------------------------------------------------------------

    def _cannot(self, why: str) -> None:
        if self._copy is not None:
            self._copy.leave(why)
        assert self.job is not None
        self.job.end(self.shown.failed(self.job.spec, why))

    def finish(self, ended: str | None = None) -> None:
        """Reports the outcome after the schedule, a non-finite value or (``ended``) the end of the script's loop."""
        assert self.job is not None
        if self._copy is not None:
            self._copy.leave("the loop was over before the probe's gate")
        if (nothing := self.shown.nothing(self.job.changes, ended)) is not None:
            self._cannot(nothing)
        job, self.job = self.job, None  # what the script does from here on belongs to no trial
        job.end(self.shown.outcome(job.spec, job.changes, ended))
