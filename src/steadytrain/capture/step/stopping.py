"""A step whose loss or gradients are not finite: it is frozen, the update refused, the first bad operation looked for.

Under the policy ``stop`` the run ends here, after one more lap of the script's own loop where the investigator asks for
one (``context``); under ``observe`` the step is frozen and training goes on. All of it is the training thread's, called
by the watcher, which has what was kept of the step (inputs, buffers, losses). Not here: the look itself (``gate``),
what a bundle holds (``incident``), and symptoms of finite values (``incidents``).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from steadytrain.capture.hooks.model_discovery import plain_name
from steadytrain.capture.incident.context import IncidentContext, LoopRerun, Rehearsal
from steadytrain.capture.incident.incident import Account, freeze_incident
from steadytrain.capture.incident.message import PARTLY_APPLIED, UNTOUCHED, stop_message
from steadytrain.capture.step.gate import Measurement, reason
from steadytrain.capture.step.input_recorder import Schedule
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.step.run_stopped import STOPPED_STATUS, RunStopped
from steadytrain.capture.step.script_frames import loop_lines
from steadytrain.core.incident import Action, Finding, Incident, Samples
from steadytrain.core.model import Symptom
from steadytrain.storage.bundle import update_incident

if TYPE_CHECKING:
    from steadytrain.capture.step.watcher import Watcher

OBSERVED_INCIDENTS_MAX = 3
LOOP_RERUN_S_MAX = 120.0


class LoopRerunTooLong(SystemExit):
    """Raised in the training thread when one more lap takes too long; the update has been refused before."""

    def __init__(self) -> None:
        super().__init__(STOPPED_STATUS)


class Stopping:
    """What the watcher does at such a step. ``lap`` is there while the script goes round once more."""

    def __init__(self, watcher: Watcher) -> None:
        self.rerun: LoopRerun | None = None
        self._watcher = watcher
        self._guard = watcher.guard
        self._observed = 0
        self._finish: Callable[[Finding], RunStopped] | None = None
        self._deadline: threading.Timer | None = None
        self._schedule: Schedule | None = None

    def look_at_loss(self, root: Tensor) -> None:
        """On the CPU a look at the loss costs nothing, and here the lines that made it still have their variables."""
        if root.device.type != "cpu" or math.isfinite(root.item()) or self._watcher.seen.early is not None:
            return
        if self._watcher.settings.policy != "stop" or self._watcher.scalers or self._watcher.investigator is None:
            return
        if not self._watcher.seen.micro_batches:
            return
        batch, term = self._watcher.seen.micro_batches[-1], self._watcher.seen.losses[-1]
        parameters = {
            plain_name(name): parameter
            for root in self._watcher.modules.called
            for name, parameter in root.named_parameters()
        }
        incident_context = IncidentContext(
            step=0,
            micro_batches=[batch],
            losses=[term],
            loss_finite=False,
            parameters=parameters,
            roots=self._watcher.modules.called,
            buffers=self._watcher.buffers,
            fetched=(),
            loop=loop_lines(batch.frames, term.frames),
            alone=not any(stream.together for stream in self._watcher.streams),
            no_lap="the loss is looked at before backward",
        )
        with self._watcher.aside():
            self._watcher.seen.early = self._watcher.investigator.look_at_loss(incident_context)

    def observe(self, stream: Stream, measured: Measurement) -> None:
        seen_before = _is_bad_already(stream)
        self._watcher.recorder.commit(stream, measured)
        if seen_before:
            return  # the detectors look in their turn
        symptoms = self._watcher.recorder.detect(stream)
        self._watcher.recorder.tell_symptoms(symptoms)
        self._watcher.instruments(stream).raised(symptoms, measured.record.step)
        if self._observed >= OBSERVED_INCIDENTS_MAX:
            return
        self._observed += 1
        action = Action(measured.record.step, "observe", "observed", "policy observe: the update was applied")
        why = "policy observe: nothing was re-run inside the process; `steadytrain locate` re-runs it in a new one"
        path, incident = self._freeze(stream, measured, symptoms, action, Finding(None, why))
        self._watcher.recorder.add_incident(path, incident)

    def _freeze(
        self,
        stream: Stream,
        measured: Measurement,
        symptoms: Sequence[Symptom],
        action: Action,
        finding: Finding,
    ) -> tuple[Path, Incident]:
        samples: tuple[Samples, ...] = ()
        with self._guard.part("naming the samples of the batch"):
            samples = self._watcher.draws.samples_of(self._watcher.seen.micro_batches)
        path, incident = freeze_incident(
            self._watcher.recorder,
            self._guard,
            stream,
            self._watcher.seen,
            self._watcher.ring,
            measured,
            Account(symptoms, action, finding, samples),
        )
        self._watcher.incidents.append(path)
        self._watcher.symptom_incidents.frozen(symptoms)
        with self._guard.part("putting the recording into the bundle"):
            self._watcher.observer.incident(stream, self._watcher.recorder.begin().path, path)
        return path, incident

    def stop(self, stream: Stream, optimizer: torch.optim.Optimizer, measured: Measurement, *, can_rerun: bool) -> None:
        """Refuse the update: write what there is, find the first bad operation, end the process."""
        step = measured.record.step
        measured.record = replace(measured.record, refused=True)
        frozen: tuple[Path, Incident] | None = None
        symptoms: list[Symptom] = []
        with self._guard.part("restoring buffers"):
            self._watcher.buffers.restore()
        what: Any = "refused-rest-of-update" if self._watcher.seen.moved_weights else "refused-update"
        action = Action(step, "stop", what, reason(measured))
        with self._guard.part("recording the refused step"):
            self._watcher.recorder.commit(stream, measured)
            symptoms = self._watcher.recorder.detect(stream)
        self._watcher.instruments(stream).at_incident(stream, step, measured.scale)
        with self._guard.part("writing the incident bundle"):
            unfinished = Finding(None, "the search for the first bad operation was cut off")
            frozen = self._freeze(stream, measured, symptoms, action, unfinished)
        with self._guard.part("writing the ledger"):
            self._watcher.recorder.open(stream).add_action(action)

        def finish(finding: Finding) -> RunStopped:
            return self._finish_stop(measured, frozen, finding)

        answer: Finding | LoopRerun = Finding(None, "no search for the first bad operation was made")
        if self._watcher.investigator is not None:
            answer = Finding(None, "steadytrain failed while it re-ran the step; see the warning above")
            with self._guard.part("re-running the step"), self._watcher.aside():
                step, loss_finite = measured.record.step, measured.loss_finite
                incident_context = self._incident_context(
                    stream, optimizer, step=step, loss_finite=loss_finite, can_rerun=can_rerun
                )
                answer = self._watcher.seen.early or self._watcher.investigator.investigate(incident_context)
        if isinstance(answer, Finding):
            raise finish(answer)
        self._begin_lap(answer, stream, finish)

    def _finish_stop(self, measured: Measurement, frozen: tuple[Path, Incident] | None, finding: Finding) -> RunStopped:
        step = measured.record.step
        self._watcher.stopped = RunStopped(f"steadytrain refused the update of step {step}")
        if frozen is not None:
            with self._guard.part("adding the located operation to the bundle"):
                complete = replace(frozen[1], finding=finding)
                update_incident(frozen[0], complete)
                self._watcher.recorder.add_incident(frozen[0], complete)
        with self._guard.part("telling of the incident"):
            why = reason(measured)
            state = PARTLY_APPLIED if self._watcher.seen.moved_weights else UNTOUCHED
            path, samples = (frozen[0], frozen[1].samples) if frozen else (None, ())
            self._watcher.tell(stop_message(step, why, measured.bad, finding, state, path, samples))
            self._watcher.stopped = RunStopped(f"steadytrain refused the update of step {step}: {why}")
        return self._watcher.stopped

    def _incident_context(
        self, stream: Stream, optimizer: torch.optim.Optimizer, *, step: int, loss_finite: bool, can_rerun: bool
    ) -> IncidentContext:
        no_lap = None
        if not can_rerun:
            no_lap = "the optimizer runs forward and backward inside its own step"
        elif stream.together:
            no_lap = "other ranks would wait for this one"
        elif len(self._watcher.streams) > 1 or len(stream.optimizers) > 1:
            no_lap = "several optimizers take turns"
        elif not type(optimizer).__module__.startswith("torch.optim"):
            no_lap = (
                f"the optimizer {type(optimizer).__qualname__} is not known to leave weights without gradient alone"
            )
        batches, losses = self._watcher.seen.micro_batches, self._watcher.seen.losses
        return IncidentContext(
            step=step,
            micro_batches=batches,
            losses=losses,
            loss_finite=loss_finite,
            parameters=dict(zip(stream.tensor_names, stream.parameters, strict=True)),
            roots=list(stream.roots()),
            buffers=self._watcher.buffers,
            fetched=self._watcher.seen.fetched,
            loop=loop_lines(batches[-1].frames, losses[-1].frames) if batches and losses else None,
            alone=not stream.together,
            no_lap=no_lap,
        )

    # -- one more lap ----------------------------------------------------------------------------------------------

    def _begin_lap(self, rerun: LoopRerun, stream: Stream, finish: Callable[[Finding], RunStopped]) -> None:
        """Let the script round once more: without gradients the optimizer leaves weights and state alone."""
        for parameter in stream.parameters:
            parameter.grad = None
        self.rerun, self._finish = rerun, finish
        with self._guard.part("keeping the schedule"):
            self._schedule = Schedule.take(stream.optimizers)
        self._watcher.tell("the update was refused; going round once more with the same batch to find the operation")
        self._deadline = threading.Timer(LOOP_RERUN_S_MAX, _interrupt, (threading.get_ident(),))
        self._deadline.daemon = True
        self._deadline.start()

    def rehearse(
        self, rehearsal: Rehearsal, stream: Stream, optimizer: torch.optim.Optimizer, *, can_rerun: bool
    ) -> None:
        """In a process that was launched to do a recorded step again: this is the step before it."""
        self._watcher.leading.refresh(stream)
        with self._watcher.aside():
            answer = rehearsal.prepare(
                self._incident_context(stream, optimizer, step=0, loss_finite=True, can_rerun=can_rerun)
            )

        def finish(finding: Finding) -> RunStopped:
            rehearsal.done(finding)
            return RunStopped("the recorded step was done again")

        if isinstance(answer, Finding):
            raise finish(answer)
        self._begin_lap(answer, stream, finish)

    def end_rerun(self, ask: Callable[[], Finding]) -> RunStopped:
        assert self._finish is not None
        if self._deadline is not None:
            self._deadline.cancel()
        rerun, self.rerun, finish = self.rerun, None, self._finish
        finding = Finding(None, "steadytrain failed while it re-ran the loop; see the warning above")
        with self._guard.part("one more lap"):
            finding = ask()
        if rerun is not None:
            with self._guard.part("one more lap"):
                rerun.end()
        with self._guard.part("restoring buffers"):
            self._watcher.buffers.restore()
        with self._guard.part("restoring the schedule"):
            if self._schedule is not None:
                self._schedule.restore()
        ending = RunStopped("steadytrain refused the update")
        with self._guard.part("handling the incident"):
            ending = finish(finding)
        self._watcher.stopped = self._watcher.stopped or ending
        return ending

    def abandon_rerun(self, why: str) -> None:
        """The script ended, failed or was interrupted during the lap: settle the incident without it."""
        if self.rerun is not None:
            rerun = self.rerun
            late = self._deadline is not None and self._deadline.finished.is_set()
            why = f"the script did not reach the optimizer again within {LOOP_RERUN_S_MAX:g} s" if late else why
            self.end_rerun(lambda: rerun.abandon(why))


def _is_bad_already(stream: Stream) -> bool:
    """Whether the step before was bad as well: a run that stays NaN is one incident, not one a step."""
    window = stream.history.recent()
    if not len(window):
        return False
    loss_bad = bool(window.present["loss"][-1]) and not math.isfinite(window.signals["loss"][-1])
    return loss_bad or not bool(np.isfinite(window.gradient_norms[-1]).all())


def _interrupt(thread: int) -> None:
    """End a lap that does not come round: raise :class:`LoopRerunTooLong` in the training thread."""
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(LoopRerunTooLong))
