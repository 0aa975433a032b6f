"""Replays recorded steps inside a freshly launched script and compares each with the tape.

The script first computes its own steps: all up to the snapshot, so that its counters match the recorded run, or only
the first, which creates model, optimizer and loaders. At the first model call of the next step the snapshot
overwrites the script's state. From then on loaders return the recorded batches, the model gets the recorded arguments
and random states, and each gate sets the recorded hyper-parameters. Forward, loss, backward and update remain the
script's own.

The script's own batches are compared before they are replaced. Different ones are reported, but do not count as a
difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from steadytrain.capture.hooks.guarded_events import MISSING
from steadytrain.capture.hooks.manual_updates import HandWritten
from steadytrain.capture.hooks.model_discovery import module_names
from steadytrain.capture.snapshots.random_parts import random_keys
from steadytrain.capture.step.gate import Measurement
from steadytrain.capture.step.input_recorder import MicroBatch, RandomState
from steadytrain.capture.step.observers import StepObserver
from steadytrain.capture.step.optimizer_streams import StepInProgress, Stream
from steadytrain.replay.batch_feeding import Merging, evaluated_between, number_differences
from steadytrain.replay.other_optimizers import OtherOptimizers
from steadytrain.replay.own_steps import BY_HAND, SHORT_LEAD, OwnSteps, is_last_own_forward
from steadytrain.replay.recorded_random import RecordedRandom
from steadytrain.replay.recorded_steps import RecordedState, RecordedStep, RecordedSteps, Tensors
from steadytrain.replay.state_restore import (
    restore_gate,
    restore_other_gate,
    restore_state,
    state_differences,
    weight_differences,
)
from steadytrain.replay.step_trace import StepTrace
from steadytrain.replay.symptom_recurrence import StepNumbers
from steadytrain.replay.verdict import Difference, Replayed
from steadytrain.storage.tape_files import Recording, Snapshot
from steadytrain.tracing.investigator import plain_module

Done = Callable[[Replayed | str, StepTrace | None], None]
CameAgain = Callable[[Mapping[int, StepNumbers]], bool | None]


class Replayer(StepObserver):
    """Replays from a snapshot to a last step and passes the result to ``done``, which does not return.

    Args:
        recording: the tape and its snapshots.
        snapshot: the state to start from.
        until: the last step.
        own_steps: steps that the script computes itself first.
        final: the recorded weights at the gate of ``until``; None if unknown.
        done: called at the gate of ``until``, before its update, with the result, or with the reason why there is none.
        trace_step: a step whose operations are all traced.
        came_again: decides whether a finite symptom recurred; without it, a value that is not finite is the symptom.
    """

    replays = True

    def __init__(
        self,
        recording: Recording,
        *,
        snapshot: Snapshot,
        until: int,
        own_steps: OwnSteps,
        final: Tensors | None,
        done: Done,
        trace_step: int | None = None,
        came_again: CameAgain | None = None,
    ) -> None:
        self._came_again = came_again
        self._numbers: dict[int, StepNumbers] = {}
        self._recording = recording
        self._steps = RecordedSteps(recording)
        self._random = RecordedRandom(self._steps)
        self._state = RecordedState(snapshot)
        self._first = snapshot.step + 1
        self._until = until
        self._final = final
        self._done = done
        self._trace_step = trace_step
        self._trace: StepTrace | None = None
        self._stream: Stream | None = None
        self._others = OtherOptimizers(self._state.stream)
        self._own_steps_wanted = own_steps.wanted
        self._skips_steps = own_steps.skips
        self._own_steps = self._own_calls = 0
        self._jumped = self._by_hand = self._restored = False
        self._now = self._first
        self._call = 0
        self._compared = 0
        self._difference: Difference | None = None
        self._symptom: bool | None = False
        self._same_batches: bool | None = None
        self._unasked = self._carried = False
        self._notes: list[str] = []
        self._given: dict[int, int] = {}
        self._first_fetched = self._steps.first_fetched(self._first)

    @property
    def stream(self) -> str:
        """The name of the optimizer whose steps are replayed."""
        return self._state.stream

    @property
    def step_now(self) -> int | None:
        """The recorded step that is being replayed; None before the first one."""
        return self._now if self._jumped else None

    # -- batches ---------------------------------------------------------------------------------------------------

    def fetch_begins(self, dataset: int) -> Any:
        """The recorded batch for this fetch.

        If steps are skipped, the tape also supplies the batches that loaders prefetched before the first replayed step.
        """
        given, ahead = self._given.get(dataset, 0) + 1, self._first_fetched.get(dataset, 0)
        if not self._skips_steps or (not self._jumped and given > ahead):
            return MISSING  # the script's own loader continues, so its epochs end as recorded: see fetched
        batch = self._recorded_batch(dataset, self._steps.fetched_before(self._first, dataset) - ahead + given)
        if batch is not MISSING:
            self._given[dataset] = given
            self._unasked = True
        return batch

    def fetched(self, dataset: int, batch: Any) -> Any:
        """Like ``fetch_begins``, after the script's own loader returned ``batch``. A fetch that fails is not
        counted."""
        given = self._given[dataset] = self._given.get(dataset, 0) + 1
        if not self._jumped or self._skips_steps:
            return MISSING
        recorded = self._recorded_batch(dataset, given)
        if recorded is not MISSING:
            merged = Merging()
            merged.put(recorded, batch)
            self._same_batches = self._same_batches is not False and merged.same
        return recorded

    def _recorded_batch(self, dataset: int, number: int) -> Any:
        found = self._steps.fetch(dataset, number, near=self._now)
        if found is None or found[1]["not_kept"] or found[1]["changed_after_use"]:
            if found is not None:
                self._note(f"batches of data set {dataset} could not be kept whole; the script's own are used")
            return MISSING
        step, fetch = found
        return step.value(fetch["batch"])

    # -- a step forms ----------------------------------------------------------------------------------------------

    def call_begins(self, module: nn.Module, call: MicroBatch, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        if not self._jumped:
            return None
        if self._call == 0:
            self._step_begins()
        step, number = self._recorded(), self._call
        self._call += 1
        if number >= len(step.calls):
            self._differs("batch", "calls of the model", str(len(step.calls)), f"more than {len(step.calls)}")
            return None
        recorded = step.calls[number]
        if recorded["module"] != type(call.module).__qualname__:
            self._differs("batch", f"call {number}", recorded["module"], type(call.module).__qualname__)
            return None
        if self._trace is not None:
            self._trace.enter_module(plain_module(module))
        state = step.random(number, "random")
        if state is not None:
            state.restore()
        if recorded["changed_after_use"]:
            self._note("inputs that were too large to copy were changed in place after use: the script's own are used")
            return None
        inputs = step.value(recorded["inputs"])
        merged = Merging()
        given = merged.put(inputs["args"], tuple(args)), merged.put(inputs["kwargs"], dict(kwargs))
        self._same_batches = self._same_batches is not False and merged.same
        for name in merged.not_kept:
            self._note(f"inputs of type {name} are not on the tape; the script's own are used")
        return given

    def forward_ended(self, call: MicroBatch | None, random: RandomState) -> None:
        if not self._jumped:
            self._own_calls += call is not None
            if is_last_own_forward(call, self._own_steps, self._own_steps_wanted):
                calls = self._own_calls if call is not None else 0
                self._random.start(self._first, goes_on=not self._skips_steps, calls=calls)
            return
        step, number = self._recorded(), self._call - 1
        if call is None or not 0 <= number < len(step.calls):
            if call is not None or self._skips_steps:
                self._prepare_random()
            return
        if (after := step.random(number, "random_after")) is None:
            return
        recorded, now = step.calls[number]["random_after"], random_keys(random)
        for name, key in recorded.items():
            if key != now[name]:
                self._differs("random", f"{name} generator after call {number} of the model", str(key), str(now[name]))
                break
        after.restore()

    def backward_begins(self) -> None:
        if self._jumped and self._compared == 0 and self._call == 1 and self._stream is not None:
            gradients = [parameter.grad for parameter in self._stream.parameters if parameter.grad is not None]
            self._carried = any(bool(gradient.any()) for gradient in gradients)
        if self._trace is not None:
            self._trace.backward_begins()

    def gate(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        if self._others.meet(stream):
            self._other_gate(stream, measured)
            return
        self._stream = stream
        if not self._jumped:
            return
        if self._call == 0:
            self._step_begins()  # no module call marked the start of the step
        if self._trace is not None and self._now == self._until:
            self._trace.end()
        step = self._recorded()
        if why := step.why_not(stream.optimizers, evaluations=seen.evaluations, skipped=self._skips_steps):
            self._cannot(why)
        self._compare(step, measured)
        self._compared += 1
        if self._came_again is not None:
            norms = dict(zip(measured.tensor_names, measured.record.gradient_norms.tolist(), strict=True))
            self._numbers[self._now] = StepNumbers(measured.record.scalars, norms)
        if self._now == self._until:
            self._compare_final(stream)
            self._symptom = self._symptom_came(measured)
            self._end(measured)
        restore_gate(step, stream)

    def _other_gate(self, stream: Stream, measured: Measurement) -> None:
        """Another optimizer is about to update."""
        if not self._jumped:
            return
        update = self._others.next_update(self._recorded(), stream)
        if update is None:
            self._differs("optimizer", f"update {self._others.updates} of another optimizer", "none", stream.name)
        elif self._restored:  # else the snapshot is the state after this update, at the first call that follows
            self._compare_numbers(f"{stream.name}: ", update.losses, update.gradient_norms, measured)
            restore_other_gate(update, stream)

    def skips(self, measured: Measurement) -> bool:
        if not self._jumped:
            return False
        step = self._recorded()
        return self._others.refused(step) if self._others.at_gate else step.skips(measured)

    @property
    def awaits_let_go(self) -> bool:
        """Whether the script is about to let go of the last step, as it did when it was recorded."""
        if not self._jumped or self._now != self._until:
            return False
        step = self._recorded()
        return step.no_update and self._call >= len(step.calls)

    def let_go(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        if self.awaits_let_go:
            self.gate(stream, seen, measured)

    def step_ended(self, stream: Stream, folder: Any) -> None:
        if stream is not self._stream:
            return
        self._others.step_begins()
        self._by_hand = any(isinstance(one, HandWritten) for one in stream.optimizers)
        if self._jumped:
            if self._trace is not None:
                self._trace.end()
            last = self._recorded()
            self._now += 1
            self._call = 0
            if self._skips_steps and evaluated_between(last, self._recorded()):
                self._prepare_random()
            return
        self.calls_forgotten()

    def calls_forgotten(self) -> None:
        self._own_steps, self._own_calls = self._own_steps + 1, 0
        if self._own_steps < self._own_steps_wanted or self._jumped:
            return
        self._jumped = True
        if self._skips_steps:
            self._given.update(self._first_fetched)
        if self._skips_steps and self._random.evaluated_before(self._first):
            self._prepare_random()

    # -- what is done at each moment -------------------------------------------------------------------------------

    def _recorded(self) -> RecordedStep:
        step = self._steps.step(self._now)
        if step is None:
            self._cannot(f"step {self._now} is not on the tape")
        assert step is not None
        if step.document["left_out"] is not None:
            self._cannot(f"step {self._now} is not whole on the tape: {step.document['left_out']}")
        return step

    def _prepare_random(self) -> None:
        """Restores the random state that the recorded run had between its last forward and the next training call."""
        step = self._recorded()
        state = step.random(self._call, "random_before") if self._call < len(step.calls) else None
        if state is not None:
            state.restore()

    def _step_begins(self) -> None:
        assert self._stream is not None
        if not self._restored:
            self._restored = True
            wrong, notes = restore_state(self._state, self._stream, list(self.scalers.values()), self._others.streams)
            wrong = wrong or self._steps.damaged(self._first, self._until)
            if wrong is not None:
                self._cannot(wrong)
            for note in notes:
                self._note(note)
        elif self._difference is None:
            shot = self._recording.snapshot_after(self._now - 1)
            if shot is not None:
                for name, there, here in state_differences(RecordedState(shot), self._stream, self._others.streams):
                    self._differs("optimizer", name, there, here, step=self._now - 1)
                    break
        if self._now == self._trace_step:
            self._trace = StepTrace(module_names(plain_module(root) for root in self._stream.roots()))
            self._trace.begin()

    def _compare(self, step: RecordedStep, measured: Measurement) -> None:
        recorded = step.document
        if self._call < len(step.calls):
            self._differs("batch", "calls of the model", str(len(step.calls)), str(self._call))
        if self._others.updates < len(step.others):
            self._differs("optimizer", "updates of others", str(len(step.others)), str(self._others.updates))
        self._compare_numbers("", recorded["losses"], step.gradient_norms, measured)
        if recorded["skipped"] != measured.record.skipped:
            self._differs("optimizer", "skipped by the scaler", str(recorded["skipped"]), str(measured.record.skipped))

    def _compare_numbers(
        self, lead: str, losses: Sequence[str], norms: Mapping[str, str], measured: Measurement
    ) -> None:
        for phase, name, there, here in number_differences(losses, norms, measured):
            self._differs(phase, lead + name, there, here)

    def _compare_final(self, stream: Stream) -> None:
        if self._final is None or self._difference is not None:
            return
        for name, recorded, now in weight_differences(self._final, stream):
            self._differs("optimizer", name, recorded, now, step=self._now - 1)
            break

    def _symptom_came(self, measured: Measurement) -> bool | None:
        """An exact replay has the symptom by definition. An inexact one may have it too."""
        if self._came_again is None:
            return measured.is_incident
        return self._difference is None or self._came_again(self._numbers)

    # -- what comes out --------------------------------------------------------------------------------------------

    def _differs(self, phase: str, tensor: str, recorded: str, replayed: str, *, step: int | None = None) -> None:
        if self._difference is None:
            self._difference = Difference(self._now if step is None else step, phase, tensor, recorded, replayed)

    def _note(self, note: str) -> None:
        if note not in self._notes:
            self._notes.append(note)

    def _cannot(self, why: str) -> None:
        self._done(why, self._ended_trace())
        raise AssertionError("the process was to end")

    def _end(self, measured: Measurement) -> None:
        if self._skips_steps and (self._difference is not None or not self._symptom):
            self._note(SHORT_LEAD)
        if self._carried and self._difference is not None:
            self._note("gradients carry over from step to step, and no snapshot contains them")
        if self._by_hand and self._difference is not None:
            self._note(BY_HAND)
        result = Replayed(
            from_step=self._first,
            until_step=self._until,
            steps=self._compared,
            first_difference=self._difference,
            symptom=self._symptom,
            # A loader that was not asked may have had other batches.
            script_batches_equal=None if self._unasked and self._same_batches else self._same_batches,
            notes=tuple(self._notes),
            loss_finite=measured.loss_finite,
        )
        self._done(result, self._ended_trace())
        raise AssertionError("the process was to end")

    def _ended_trace(self) -> StepTrace | None:
        if self._trace is not None:
            self._trace.end()
        return self._trace
