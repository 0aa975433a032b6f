"""Follow a schedule of recorded steps inside a launched script, with changes applied.

The ordinary replay is the schedule 54, 55, ...; here recorded steps come in any order, some without their update, with
probes between them. As in a replay (``replay/engine.py``), the script makes steps of its own first, then the snapshot
takes the place of its state, loaders and the model get what was recorded, and forward, loss, backward and update are
the script's own.

A probe runs in a copy of the process: forked after an update, it goes round the loop once with the probe's batch and
ends at its gate. So probes move no counter, no generator and no state of the script, and cost little more than their
forward and backward. Where a process cannot be copied (a GPU) the probe is a round of the loop whose update is refused.

What lets a process be shared stands in ``stage.py``, which gives the :class:`Job`.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.patches import MISSING
from steadytrain.capture.step.gate import Measurement
from steadytrain.capture.step.input_recorder import MicroBatch, RandomState
from steadytrain.capture.step.observers import StepObserver
from steadytrain.capture.step.optimizer_streams import StepInProgress, Stream
from steadytrain.core.json_values import number_from_json, number_to_json
from steadytrain.experiments.specs import OWN_TARGETS, Entry, Outcome, ProbeSeen, Spec, StepSeen
from steadytrain.replay.batch_feeding import Merging, evaluated_between, norms_of
from steadytrain.replay.engine import is_last_own_forward
from steadytrain.replay.recorded_steps import RecordedState, RecordedStep, RecordedSteps
from steadytrain.replay.state_restore import restore_groups, restore_state
from steadytrain.storage.tape_files import Recording
from steadytrain.trial_runs.batch_order import Batch, Batches
from steadytrain.trial_runs.changes import LiveChange
from steadytrain.trial_runs.launched_script import CannotApplyError, Kept, Launched, drop_gradients

OTHER_INPUTS = (
    "the script made other inputs than those recorded for a step, and computed its loss from them: there its own "
    "batch was used"
)
PROBE_S_MAX = 60.0
RATIO_ELEMENTS_MAX = 64_000_000
"""Of larger models the ratio of update to weights is not measured: it takes a copy of them."""


@dataclass(frozen=True)
class Job:
    """One spec, its changes as they act here, and where its outcome goes; ``report`` does not return."""

    spec: Spec
    changes: Sequence[LiveChange]
    report: Callable[[Outcome], None]
    early_done: bool = False
    began: float = 0.0


class TrialRun(StepObserver):
    """Runs one job after the script's own steps.

    Args:
        recording: the tape, empty where there is none.
        begin: the step of the snapshot to begin with, None for the script's own beginning.
        own_steps: steps that the script makes by itself before.
        stage: called in the last of these, after its first forward; gives the job, maybe in a copy of the process.
        copies: whether a probe may run in a copy of the process.
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
        self.probing = False
        """Whether this process is the copy that runs a probe."""

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
        self._before: list[Tensor] = []
        self._seen: list[StepSeen] = []
        self._probes: list[ProbeSeen] = []
        self._exact: bool | None = None
        self._notes: list[str] = []
        self._batches: Batches | None = None
        self._queues: dict[int, deque[Batch]] = {}
        self._given: dict[int, int] = {}
        self._rounds_before = 0
        self._answer = -1
        self._loss_inside = False
        if begin is None:
            self._take(stage())
            self._next_entry()

    # -- batches ---------------------------------------------------------------------------------------------------

    def fetch_begins(self, dataset: int) -> Any:
        if self._own_steps_wanted != 1 and not self.probing:
            return MISSING  # the script's own loader goes on, and its epochs end where they did: see fetched
        if not torch.is_grad_enabled():
            return MISSING
        if self.job is None:
            return self._read_ahead(dataset)
        if self._is_of_own_step(dataset):
            return MISSING
        batch = self._next_batch(dataset)
        if batch is MISSING and self.probing and self._entry.step is not None and self._is_fed(dataset):
            self._leave("a probe's batch was not kept")
        return batch

    def fetched(self, dataset: int, batch: Any) -> Any:
        if not torch.is_grad_enabled():
            return MISSING
        self._given[dataset] = self._given.get(dataset, 0) + 1
        if self.job is None or (self._own_steps_wanted == 1 and not self._own_batches):
            return MISSING
        other = self._next_batch(dataset) if self._jumped else MISSING
        given = batch if other is MISSING else other
        for change in self.job.changes:
            given = change.fetched(self.process, self._entry.step, given)
        return MISSING if given is batch else given

    @property
    def _own_batches(self) -> bool:
        return self.job is not None and any(change.own_batches for change in self.job.changes)

    def _is_fed(self, dataset: int) -> bool:
        return self._batches is not None and self._batches.each(dataset) > 0

    def _is_of_own_step(self, dataset: int) -> bool:
        """Whether the next batch is for the script's own step still: one that accumulates asks for several."""
        return not self._jumped and self._given.get(dataset, 0) < self._used_before(dataset)

    def _used_before(self, dataset: int) -> int:
        """How many batches the script's own steps use."""
        return self._own_steps_wanted * self._batches.each(dataset) if self._batches is not None else 0

    def _next_batch(self, dataset: int) -> Any:
        """The recorded batch that belongs here, changed where a change changes batches."""
        queue = self._queues.get(dataset)
        if not queue or self._own_batches or self.job is None:
            return MISSING
        batch = queue.popleft()
        if self.probing and not queue:
            queue.append(batch)  # a loader that reads ahead goes on reading
        if batch.value is MISSING:
            return MISSING
        value = batch.value
        for change in self.job.changes:
            value = change.fetched(self.process, batch.step, value)
        return value

    def _read_ahead(self, dataset: int) -> Any:
        """What a loader that reads ahead gets in the script's only own step: the first batches after the snapshot."""
        if self._begin is None:
            return MISSING
        self._batches = self._batches or Batches(self._steps, self._begin + 1)
        each, ahead = self._batches.each(dataset), self._batches.ahead(dataset)
        number = self._given.get(dataset, 0) + 1
        if not 0 < number - each <= ahead:
            return MISSING
        queue = self._batches.queue(range(self._begin + 1, self._begin + 1 + ahead), dataset)
        batch = queue[number - each - 1].value if len(queue) >= number - each else MISSING
        if batch is not MISSING:
            self._given[dataset] = number
        return batch

    def _fill_queues(self) -> None:
        """The batches of all entries to come, in the order in which loaders are asked for them."""
        assert self.job is not None
        numbers = [entry.step for entry in self.job.spec.schedule if not (entry.role == "probe" and self._copies)]
        near = next((number for number in numbers if number is not None), None)
        near = near if near is not None else next((e.step for e in self.job.spec.schedule if e.step is not None), None)
        if near is None or not self._steps.step(near):
            return
        self._batches = Batches(self._steps, near)
        in_order = self._begin is not None and numbers[:1] == [self._begin + 1]
        for dataset in self._batches.datasets:
            queue = deque(self._batches.queue(numbers, dataset))
            given = self._given_ahead(dataset)
            if in_order:
                for _ in range(min(given, len(queue))):
                    queue.popleft()
            elif given and self._begin is not None:
                self._rounds_before = max(self._rounds_before, math.ceil(given / self._batches.each(dataset)))
            self._queues[dataset] = queue

    def _given_ahead(self, dataset: int) -> int:
        """How many batches of the steps to come a loader that reads ahead has given by now, or will before the jump."""
        assert self._batches is not None
        ahead = self._batches.ahead(dataset)
        if self._own_steps_wanted != 1:
            return ahead
        return min(ahead, max(0, self._given.get(dataset, 0) - self._used_before(dataset)))

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
        if number >= len(step.calls) or step.calls[number]["module"] != type(call.module).__qualname__:
            self._note("the script calls its model otherwise than in the recorded step; there its own batch was used")
            return None
        state = step.random(number, "random")
        if state is not None:
            state.restore()
        if self._own_batches or step.calls[number]["changed_after_use"]:
            return None
        inputs = step.value(step.calls[number]["inputs"])
        merged = Merging()
        given = merged.put(inputs["args"], tuple(args)), merged.put(inputs["kwargs"], dict(kwargs))
        for name in merged.not_kept:
            self._note(f"inputs of type {name} are not on the tape; the script's own are used")
        if not merged.same and not self._loss_inside:
            # Targets are the script's own: they go with the inputs that it has made, not with those of the tape.
            self._note(OTHER_INPUTS)
            return None
        return given

    def forward_ended(self, call: MicroBatch | None, random: RandomState) -> None:
        if not self._jumped:
            if is_last_own_forward(call, self._own_steps, self._own_steps_wanted):
                if self.job is None:
                    self._take(self._stage())
                self._prepare_random(self._following(-1))
            return
        step, number = self._recorded, self._call - 1
        if call is None or step is None or number >= len(step.calls) - 1:
            following = self._following(self._at)
            if self._entry.step is not None and self._is_next(following):
                self._restore_after(step, number)
            else:
                self._prepare_random(following)
            return
        self._restore_after(step, number)

    def backward_begins(self) -> None:
        pass

    def gate(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        self._stream = self._stream or stream
        if stream is not self._stream:
            self._note("several optimizers take turns: only the state of the first one is in the snapshots")
            return
        self.process.stream, self.process.scalers = stream, self.scalers
        self.process.roots = list(stream.roots()) or self.process.roots
        self._loss_inside = _loss_is_of_model(seen)
        if not self._jumped or self.job is None:
            return
        if not self._loss_inside and any(change.inputs_alone for change in self.job.changes):
            self._note(OWN_TARGETS)
        if self._call == 0:
            self._step_begins(None)  # no call of a module marked the beginning of the step
        if seen.evaluations > 1:
            self._cannot("the optimizer evaluates its closure several times, which no tape holds")
        loss = math.fsum(measured.losses) / len(measured.losses) if measured.losses else None
        if self._rounds_before:
            self._refuse()
        elif self.probing:
            self._answer_probe(loss)
        elif self._entry.role == "train":
            self._gate_of_train(stream, measured, loss)
        else:
            if self._entry.role == "probe":
                self._probes.append(ProbeSeen(self._at, self._entry.step, loss))
            self._refuse()
        self._update_due, self._skipped = True, measured.record.skipped

    def _gate_of_train(self, stream: Stream, measured: Measurement, loss: float | None) -> None:
        assert self.job is not None
        finite = not measured.is_incident
        self._seen.append(StepSeen(self._at, loss, measured.record.scalars.get("gradient_norm"), finite))
        if self._recorded is not None:
            recorded = self._recorded.document
            same = [float(one).hex() for one in measured.losses] == recorded["losses"]
            same = same and norms_of(measured) == self._recorded.gradient_norms
            self._exact = same and self._exact is not False
            due = self._due() or self._recorded
            restore_groups(due.value(due.document["groups"]), stream)
        if not finite:
            self.finish()
        if not measured.record.skipped:
            self._change(lambda change: change.gate(self.process))
            if sum(parameter.numel() for parameter in stream.parameters) <= RATIO_ELEMENTS_MAX:
                self._before = [parameter.detach().clone() for parameter in stream.parameters]

    def _due(self) -> RecordedStep | None:
        """The recorded step of this place: where other batches are fed, the schedule goes on as it did."""
        if self._begin is None or self.job is None:
            return None
        before = sum(entry.role != "probe" for entry in self.job.spec.schedule[: self._at])
        return self._steps.step(self._begin + 1 + before)

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
        if stream is self._stream and self._update_due:
            self._entry_over()

    # -- what is done at each moment -------------------------------------------------------------------------------

    def _take(self, job: Job) -> None:
        self.job = job
        for entry in job.spec.schedule:
            if entry.step is not None and self._steps.step(entry.step) is None:
                self._cannot(f"step {entry.step} is not on the tape")
        self._fill_queues()

    def _step_begins(self, module: nn.Module | None) -> None:
        assert self.job is not None
        process = self.process
        process.role, process.entry, process.trained = self._entry.role, self._at, len(self._seen)
        if self.probing:
            process.role = "probe"
        if self._refused is not None:
            self._refused.restore_scalers()
            self._refused = None
        if not self._restored:
            self._restored = True
            self._restore(module)
            self._change(lambda change: change.begin(process))
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
            self._note(note)

    def _change(self, what: Callable[[LiveChange], None]) -> None:
        assert self.job is not None
        try:
            for change in self.job.changes:
                what(change)
        except CannotApplyError as error:
            self._cannot(str(error))

    def _entry_over(self) -> None:
        """The update was applied, skipped or refused: the next entry's turn."""
        assert self.job is not None
        self._update_due = False
        self.process.undo_groups()
        if self._kept is not None:
            self._kept.restore()
            self._refused, self._kept = self._kept, None
        elif not self._skipped:
            self._change(lambda change: change.updated(self.process))
            self._note_ratio()
        if self._rounds_before:
            self._rounds_before -= 1
            self._call = 0
            self._prepare_random(self._entry.step)
            return
        self._next_entry()

    def _next_entry(self) -> None:
        assert self.job is not None
        schedule = self.job.spec.schedule
        self._at += 1
        while self._at < len(schedule) and schedule[self._at].role == "probe" and self._copies:
            if self._probe(schedule[self._at]):
                return  # this is the copy now
            self._at += 1
        if self._at >= len(schedule):
            self.finish()
        self._enter(schedule[self._at])
        if self._begin is None and self._at == 0:
            return
        number = self._entry.step
        if number is not None and self._evaluated_before(number):
            self._prepare_random(number)

    def _enter(self, entry: Entry) -> None:
        self._entry, self._call = entry, 0
        self._recorded = None if entry.step is None else self._steps.step(entry.step)

    def _note_ratio(self) -> None:
        if not self._before or self._stream is None or not self._seen:
            return
        with torch.no_grad():
            now = self._stream.parameters
            moved = math.sqrt(sum(float((one - old).norm()) ** 2 for one, old in zip(now, self._before, strict=False)))
            size = math.sqrt(sum(float(old.norm()) ** 2 for old in self._before))
        last = self._seen[-1]
        ratio = moved / size if size else None
        self._seen[-1] = StepSeen(last.entry, last.loss, last.gradient_norm, last.finite, ratio)
        self._before = []

    # -- random states ---------------------------------------------------------------------------------------------

    def _following(self, at: int) -> int | None:
        """The recorded step of the next entry that this process runs itself."""
        assert self.job is not None
        if self.probing:
            return None
        for entry in self.job.spec.schedule[at + 1 :]:
            if not (entry.role == "probe" and self._copies):
                return entry.step
        return None

    def _is_next(self, number: int | None) -> bool:
        """Whether ``number`` follows the running step as in the recorded run, or no step of it does."""
        return number is None or (self._entry.step == number - 1) or self._evaluated_before(number)

    def _evaluated_before(self, number: int) -> bool:
        before, here = self._steps.step(number - 1), self._steps.step(number)
        return before is not None and here is not None and evaluated_between(before, here)

    def _prepare_random(self, number: int | None) -> None:
        """The state in which the recorded run came from its last forward to the first call of step ``number``."""
        step = None if number is None else self._steps.step(number)
        state = step.random(0, "random_before") if step is not None and step.calls else None
        if state is not None:
            state.restore()

    def _restore_after(self, step: RecordedStep | None, number: int) -> None:
        if step is None or not 0 <= number < len(step.calls):
            return
        after = step.random(number, "random_after")
        if after is not None:
            after.restore()

    # -- probes ----------------------------------------------------------------------------------------------------

    def _probe(self, entry: Entry) -> bool:
        """Measure ``entry`` in a copy of this process; True in the copy, which goes on to its gate and ends there."""
        sys.stdout.flush()
        sys.stderr.flush()
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reads)
            self._become_probe(entry, writes)
            return True
        os.close(writes)
        text = _read_all(reads, PROBE_S_MAX)
        os.close(reads)
        if text is None:
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        loss = number_from_json(json.loads(text)) if text else None
        self._probes.append(ProbeSeen(self._at, entry.step, loss))
        return False

    def _become_probe(self, entry: Entry, answer: int) -> None:
        self.probing, self._answer = True, answer
        if torch.get_num_threads() > 1:
            torch.set_num_threads(1)  # the threads of a pool are not in the copy
        self._enter(entry)
        if entry.step is not None and self._batches is not None:
            for dataset in self._batches.datasets:
                self._queues[dataset] = deque(self._batches.used_by(entry.step, dataset))
                each, ahead = self._batches.each(dataset), self._batches.ahead(dataset)
                if ahead and each:  # what the loader has read ahead goes round first, refused
                    self._rounds_before = max(self._rounds_before, math.ceil(ahead / each))
        self._prepare_random(entry.step)

    def _answer_probe(self, loss: float | None) -> None:
        text = json.dumps(None if loss is None else number_to_json(loss))
        os.write(self._answer, text.encode())
        self._leave("")

    def _leave(self, why: str) -> None:
        """End the copy without a trace."""
        if why:
            print(f"steadytrain: {why}", file=sys.stderr, flush=True)
        os._exit(0)

    # -- what comes out --------------------------------------------------------------------------------------------

    def _note(self, note: str) -> None:
        if note not in self._notes:
            self._notes.append(note)

    def _cannot(self, why: str) -> None:
        if self.probing:
            self._leave(why)
        assert self.job is not None
        self._report(Outcome(self.job.spec, False, why, notes=tuple(self._notes)))

    def finish(self, ended: str | None = None) -> None:
        """The schedule is through, a value is not finite, or (``ended``) the script's loop is over."""
        assert self.job is not None
        if self.probing:
            self._leave("the loop was over before the probe's gate")
        untouched = [change for change in self.job.changes if not change.touched]
        if self.job.changes and len(untouched) == len(self.job.changes):
            self._cannot(untouched[0].nothing)
        reached = len(self._seen)
        wanted = sum(entry.role == "train" for entry in self.job.spec.schedule)
        if not reached:
            self._cannot(f"{ended or 'the trial ended'} before its first step")
        self._report(
            Outcome(
                self.job.spec,
                True,
                steps=tuple(self._seen),
                probes=tuple(self._probes),
                exact=self._exact,
                ended=f"{ended} after {reached} of {wanted} steps" if ended else None,
                notes=tuple(self._notes),
                measured={name: value for one in self.job.changes for name, value in one.measured().items()},
            )
        )

    def _report(self, outcome: Outcome) -> None:
        assert self.job is not None
        seconds = time.perf_counter() - self.job.began if self.job.began else 0.0
        self.job.report(Outcome(**{**vars(outcome), "seconds": round(seconds, 3)}))
        raise AssertionError("the process was to end")


def _loss_is_of_model(seen: StepInProgress) -> bool:
    """Whether the model itself gave every loss, so that its arguments are all that a loss is made of."""
    outputs = {node for call in seen.micro_batches for node in call.scalar_outputs}
    return bool(seen.losses) and all(outputs.intersection(term.nodes) for term in seen.losses)


def _read_all(descriptor: int, wait_s: float) -> bytes | None:
    """What is written until the other end closes; None where that takes too long."""
    text = b""
    until = time.monotonic() + wait_s
    while True:
        left = until - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            return None
        part = os.read(descriptor, 4096)
        if not part:
            return text
        text += part
