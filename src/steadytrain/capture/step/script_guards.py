"""Detects batches with a non-finite loss or gradient for which the script itself makes no update.

A script may break out of its loop, raise, continue with the next batch, or have ``clip_grad_norm_`` or autograd's
anomaly mode raise. Then it never calls the optimizer, and the gate sees nothing. So such a batch is checked here: when
the next batch begins, when the script discards its gradients, when torch raises, and when the script ends. The first
batch of a kind is frozen as an incident; all are counted. Nothing is refused here, because the script decides. A
replaying process freezes nothing: its observer receives such a batch as it would at the gate.

A loss without a backward is a variable of the function that called the model. The frame of that function is kept
between this call and backward, so its variables can be read after the function has ended. Most checks do not wait for
an accelerator.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from steadytrain.capture.incident.context import Investigator
from steadytrain.capture.incident.incident import Account, freeze_incident
from steadytrain.capture.incident.message import let_go_message
from steadytrain.capture.step.gate import Measurement, bad_gradients, kind_of, reason
from steadytrain.capture.step.incident_contexts import let_go_context
from steadytrain.capture.step.input_recorder import MicroBatch
from steadytrain.capture.step.let_go import ROW_CRITICAL, LetGo
from steadytrain.capture.step.live_run import LiveRun
from steadytrain.capture.step.loss import LossTerm, lines_of, loss_term
from steadytrain.capture.step.optimizer_streams import StepInProgress, Stream
from steadytrain.capture.step.raised_steps import why_raised
from steadytrain.capture.step.script_frames import FrameLine, LoopLines, frame_of, losses_in, user_frames
from steadytrain.core.incident import Action, BadTensor, Finding
from steadytrain.core.model import GRADIENT_ABSENT
from steadytrain.core.torch_private import KEEP_VERSION
from steadytrain.storage.segments import StepRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

ANOMALY = "returned nan values"
"""A part of the message of autograd's anomaly mode."""

NONFINITE_NORM = "non-finite"
"""A part of the message of ``clip_grad_norm_(error_if_nonfinite=True)``."""

_OF_THE_DEVICE = re.compile(r"CUDA|NCCL|HIP|out of memory", re.IGNORECASE)


@dataclass(frozen=True)
class _Case:
    """One batch without an update: the symptom's name, the reason in words, and the evidence."""

    name: str
    what: str
    batches: Sequence[MicroBatch]
    terms: Sequence[LossTerm]
    losses: tuple[float, ...] = ()
    bad: tuple[BadTensor, ...] = ()
    loop: LoopLines | None = None
    finding: Finding | None = None
    raised: bool = False
    """Whether autograd or the script raised; then there are no gradients to count."""


BACKWARDS = 8
"""How many of the last backwards show how many calls of the model one uses."""


class ScriptGuards:
    """Follows one run. Only the training thread uses it."""

    def __init__(self, run: LiveRun, investigator: Investigator | None) -> None:
        self._run = run
        self._investigator = investigator
        self._let_go: dict[tuple[str, str], LetGo] = {}
        self._judged: object = None
        self._frame: FrameType | None = None
        self._loop_codes: frozenset[CodeType] = frozenset()
        self._newest = -1
        self._looks = 0
        self._zeroed = 0
        self._calls_each: deque[int] = deque(maxlen=BACKWARDS)
        self._calls_before = 0
        self._raised: list[int] = []
        self._over = False
        self._bad_root: Tensor | None = None

    # -- what is followed ------------------------------------------------------------------------------------------

    def called(self, call: MicroBatch) -> None:
        """The script called the model with gradients enabled."""
        if self._frame is None:
            codes = self._loop_codes
            loop = next((line for line in call.frames if line.code in codes), *call.frames[:1] or (None,))
            self._frame = frame_of(loop) if loop is not None else None

    def call_raised(self, call: MicroBatch) -> None:
        """A model call with gradients enabled has raised."""
        self._raised.append(id(call))

    def backward_begins(self, term: LossTerm | None) -> None:
        """A backward uses the calls so far; ``term`` is its loss, None if unknown."""
        self._frame, self._looks = None, 0
        calls = len(self._run.seen.micro_batches)
        self._calls_each.append(max(1, calls - self._calls_before))
        self._calls_before = calls
        if term is not None:
            self._newest = max(self._newest, term.nodes[0])
            self._loop_codes = frozenset(line.code for line in term.frames)

    def forget(self) -> None:
        """Release all of the script's objects."""
        self._frame, self._judged, self._bad_root = None, None, None

    # -- when it is judged -----------------------------------------------------------------------------------------

    def batch_begins(self) -> None:
        """The script calls the model again. If the same lines do so, it abandoned a previous call without a backward.

        Scripts that sum losses over several calls before one backward also come here; the gate then judges their step.
        As many calls are waited for as each of the last backwards used.
        """
        seen = self._run.seen
        if seen.losses and (root := seen.losses[-1].root) is not self._bad_root and _is_ready(root):
            self._bad_root = None if math.isfinite(root.item()) else root
        calls = len(seen.micro_batches)
        self._calls_before = min(self._calls_before, calls)
        unused = calls - seen.used
        if unused < min(self._calls_each, default=1) or not self._follows():
            return
        if seen.micro_batches[-1] is not self._judged:
            self._looks += 1
            # Many calls before one backward are no fault, so check only after 1, 2, 4, ... of them.
            if self._looks & (self._looks - 1) == 0 or self._is_sure:
                with self._run.guard.part("looking at a batch without an update"):
                    if lines_of(seen.micro_batches[-1].frames) == lines_of(user_frames()):
                        self._judge_variables(self._held_frames(), wait=False)
        self._frame = None

    def gradients_zeroed(self) -> None:
        """The script discards gradients without an update."""
        seen = self._run.seen
        if seen.losses and self._follows() and not self._run.scaling.scalers:
            known = seen.losses[-1].root is self._bad_root
            self._zeroed += 1
            # A loop that always does so is no fault, so check only after 1, 2, 4, ... times.
            if known or self._is_sure or self._zeroed & (self._zeroed - 1) == 0:
                with self._run.guard.part("looking at gradients without an update"):
                    self._judge_gradients(wait=known)

    def torch_raised(self, error: Exception) -> None:
        """``clip_grad_norm_`` or backward has raised; the variables of the script's lines still exist."""
        text = str(error)
        if not self._follows() or not any(mark in text for mark in (ANOMALY, NONFINITE_NORM)):
            return
        with self._run.guard.part("looking at a batch without an update"):
            if ANOMALY in text:
                self._judge_backward(text)
            else:
                self._judge_gradients(wait=True, where="; clip_grad_norm_ raised for it")

    def script_ends(self, error: BaseException | None) -> None:
        """The script is over, or about to end with ``error``. Check the batch that has no update yet."""
        if self._over:
            return
        self._over = True
        calls = self._run.seen.micro_batches
        if error is not None and calls and self._raised[-1:] == [id(calls[-1])]:
            self._raised.pop()  # the one that ends the script
        if self._follows() and not (error is not None and _OF_THE_DEVICE.search(f"{type(error).__name__} {error}")):
            seen = self._run.seen
            with self._run.guard.part("looking at the last batch"):
                if len(seen.micro_batches) > seen.used:
                    self._judge_variables([*_frames_of(error), *self._held_frames()], wait=True)
                    if error is not None and seen.micro_batches[-1] is not self._judged:
                        self._judge_raised(error)
                elif seen.losses and not self._run.scaling.scalers:
                    self._judge_gradients(wait=True)
        self.forget()

    def close(self) -> None:
        """Record the final counts."""
        for let in self._let_go.values():
            if self._run.stopped is not None and let.last_step == let.stream.step + 1:
                continue  # the batch reached the gate after all
            if let.row and let.row == let.count and let.last_step == let.stream.step + 1:
                let.severity = "critical"  # the script made no update after it
            with self._run.guard.part("recording a batch without an update"):
                self._run.recorder.report(let.stream, let.symptom())
        self.forget()

    def told(self) -> list[str]:
        """One line for each kind of batch without an update, and one for model calls that raised."""
        calls = len(self._raised)
        went_on = "call of the model raised" if calls == 1 else "calls of the model raised"
        found = [let.symptom().message for let in self._let_go.values()]
        return [*found, *([f"{calls} {went_on}, and the script continued"] if calls else [])]

    # -- how -------------------------------------------------------------------------------------------------------

    def _follows(self) -> bool:
        run = self._run
        return run.stopped is None and run.rerun is None and not run.rehearses

    @property
    def _is_sure(self) -> bool:
        """Whether every batch is checked: there was a batch without an update before, or this is a replay."""
        return bool(self._let_go) or self._run.observer.replays

    def _held_frames(self) -> list[FrameType]:
        return [self._frame] if self._frame is not None else []

    def _judge_variables(self, frames: Sequence[FrameType], *, wait: bool) -> None:
        """Check the losses among the variables of the script."""
        seen = self._run.seen
        call = seen.micro_batches[-1]
        if call is self._judged:
            return
        for frame in frames:
            found = [one for one in losses_in(frame, self._newest) if wait or _is_ready(one.value)]
            bad = [one for one in found if not math.isfinite(one.value.item())]
            if not bad:
                continue
            last = max(bad, key=lambda one: one.sequence)
            self._newest = max(self._newest, *(one.sequence for one in found))
            line = next((line for line in call.frames if line.frame_id == id(frame)), None)
            loop = LoopLines(frame, line.line, frame.f_lineno, last.name) if line is not None else None
            term = replace(loss_term(last.value), frames=(FrameLine(id(frame), frame.f_code, frame.f_lineno),))
            value = float(last.value.item())
            what = f"the loss is {kind_of(value)}"
            self._judge(_Case("nonfinite-loss", what, seen.micro_batches[seen.used :], [term], (value,), loop=loop))
            return

    def _judge_gradients(self, *, wait: bool, where: str = "") -> None:
        """Check the loss and the gradients of a backward without an update."""
        seen = self._run.seen
        batches, roots = seen.micro_batches[: seen.used], [term.root for term in seen.losses]
        if (batches[-1] if batches else roots[-1]) is self._judged or not (wait or _is_ready(roots[-1])):
            return
        losses = tuple(float(root.item()) for root in roots)
        stream = self._stream_of(batches)
        if stream is None:
            return
        bad = () if not all(map(math.isfinite, losses)) else bad_gradients(stream, seen)
        measured = _measured(stream, losses, bad, self._run.clock())
        if measured.is_incident:
            name = "nonfinite-gradient" if measured.loss_finite else "nonfinite-loss"
            self._judge(_Case(name, reason(measured) + where, batches, seen.losses, losses, bad, finding=seen.early))

    def _judge_raised(self, error: BaseException) -> None:
        """Check the batch in which the script raised before it had a loss."""
        seen = self._run.seen
        batches = seen.micro_batches[seen.used :]
        stream = self._stream_of(batches)
        if stream is None:
            return
        with self._as_before(), self._run.aside():
            found = why_raised(self._run, stream, self._investigator, batches, error)
        if found is not None:
            what, finding = found
            self._judge(_Case("nonfinite-loss", what, batches, [], finding=finding, raised=True))

    def _judge_backward(self, text: str) -> None:
        seen = self._run.seen
        losses = tuple(float(term.root.item()) for term in seen.losses)
        what = f"autograd's anomaly mode raised: {text.rstrip('.')}"
        self._judge(
            _Case("nonfinite-gradient", what, seen.micro_batches, seen.losses, losses, finding=seen.early, raised=True)
        )

    def _judge(self, case: _Case) -> None:
        run = self._run
        stream = self._stream_of(case.batches)
        if stream is None:
            return
        self._judged = case.batches[-1] if case.batches else case.terms[-1].root
        if run.observer.replays:
            run.observer.let_go(stream, *self._as_at_gate(case, stream))
            return
        run.instruments(stream).leave_out()
        key = (case.name, stream.name)
        let = self._let_go.get(key)
        if let is None:
            let = self._let_go[key] = LetGo(stream, case.name, case.what, stream.step + 1)
            let.add()
            self._freeze(case, let)
            return
        let.add()
        if let.row == ROW_CRITICAL:
            let.severity = "critical"
            run.recorder.report(stream, let.symptom())
            run.recorder.tell_symptoms([let.symptom()])

    def _freeze(self, case: _Case, let: LetGo) -> None:
        run, stream = self._run, let.stream
        step, symptom = let.first_step, let.symptom()
        with self._as_before(), run.aside():
            finding = self._finding(case, stream, step)
            samples = run.draws.samples_of(list(case.batches))
            done = Action(step, run.settings.policy, "observed", "the script itself made no update with this batch")
            seen, measured = self._as_at_gate(case, stream)
            account = Account([symptom], done, finding, samples, name="-no-update")
            run.recorder.open(stream)
            run.observer.let_go(stream, seen, measured)
            path, incident = freeze_incident(
                run.recorder, run.guard, stream, seen, run.ring, measured, account, run.observer
            )
        run.incidents.append(path)
        run.recorder.report(stream, symptom)
        run.symptom_incidents.frozen([symptom])
        run.recorder.add_incident(path, incident)
        run.tell(let_go_message(step, case.what, case.bad, finding, path, samples))

    def _as_at_gate(self, case: _Case, stream: Stream) -> tuple[StepInProgress, Measurement]:
        """The step that the script did not make, and the measurement that the gate would have made."""
        seen = replace(self._run.seen, micro_batches=list(case.batches), losses=list(case.terms))
        measured = _measured(stream, case.losses, case.bad, self._run.clock())
        return seen, replace(measured, raised=case.raised)

    def _finding(self, case: _Case, stream: Stream, step: int) -> Finding:
        run = self._run
        if case.finding is not None:
            return case.finding
        if run.settings.policy != "stop" or self._investigator is None:
            return Finding(None, "nothing was re-run inside the process; `steadytrain locate` re-runs it in a new one")
        context = let_go_context(run, stream, case.batches, case.terms, step=step, losses=case.losses, loop=case.loop)
        finding: Finding | None = None
        with run.guard.part("re-running the step"), torch.autograd.set_detect_anomaly(False):
            answer = self._investigator.investigate(context)
            finding = answer if isinstance(answer, Finding) else None
        return finding or Finding(None, "the step could not be run again")

    @contextmanager
    def _as_before(self) -> Iterator[None]:
        """Restores the buffers to the beginning of the step inside the context; that state is frozen."""
        buffers = self._run.buffers.as_now()
        with ExitStack() as versions:
            for kept in buffers:
                versions.enter_context(KEEP_VERSION(kept.buffer))
            try:
                self._run.buffers.restore()
                yield
            finally:
                for kept in buffers:
                    kept.restore()

    def _stream_of(self, batches: Sequence[MicroBatch]) -> Stream | None:
        """The stream that this batch would have belonged to."""
        run = self._run
        if not run.streams:
            optimizer = run.made()
            if optimizer is None:
                return None
            run.leading.lead(optimizer, StepInProgress(), saw_loss=run.saw_loss, skipped=False)
        streams = run.streams
        if batches and len(streams) > 1:
            module = batches[-1].module
            streams = [one for one in streams if any(module is part for root in one.roots() for part in root.modules())]
        stream = next(iter(streams), None)
        if stream is not None and stream.optimizers:
            run.leading.refresh(stream)
            return stream
        return None


def _measured(stream: Stream, losses: tuple[float, ...], bad: tuple[BadTensor, ...], time_s: float) -> Measurement:
    """The measurement of a step that the script did not make. It is not recorded."""
    norms = np.full(len(stream.parameters), GRADIENT_ABSENT, np.float32)
    record = StepRecord(stream.step + 1, time_s, {"loss": losses[-1] if losses else None}, norms)
    return Measurement(losses, record, stream.tensor_names, bad, None, 1.0, committed=True)


def _is_ready(value: Tensor) -> bool:
    """Whether ``value`` can be read without waiting for a device."""
    if value.device.type == "cpu":
        return True
    if value.device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return False
    return bool(torch.cuda.current_stream(value.device).query())


def _frames_of(error: BaseException | None) -> list[FrameType]:
    """The frames of the traceback of ``error``, innermost first."""
    frames: list[FrameType] = []
    trace: TracebackType | None = error.__traceback__ if error is not None else None
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    return frames[::-1]
