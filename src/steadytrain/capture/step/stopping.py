"""Handles a step with a non-finite loss or gradient: freezes it, refuses its update, starts the search for the cause.

Under ``skip`` the step is frozen, its update is skipped (``skipping``), and the training goes on. Under ``stop`` the
run ends here. If the investigator asks for it (``context``), the script's own loop first runs one more lap. Under
``observe`` the step is frozen and training continues. Not here: the measurement (``gate``), the contents of a bundle
(``incident``), the lap (``lap``), and symptoms of finite values (``incidents``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steadytrain.capture.incident.context import Investigator, LoopRerun, Rehearsal
from steadytrain.capture.incident.incident import Account, freeze_incident
from steadytrain.capture.incident.message import (
    PARTLY_APPLIED,
    UNTOUCHED,
    UNTOUCHED_AT_REST,
    damaged_state,
    not_recorded,
    off_course,
    skip_message,
    stop_message,
)
from steadytrain.capture.snapshots.good_state import last_good_snapshot, nonfinite_parameters
from steadytrain.capture.step.broken_updates import breaks_at
from steadytrain.capture.step.gate import Measurement, reason
from steadytrain.capture.step.incident_contexts import at_gate, before_backward
from steadytrain.capture.step.live_run import LiveRun
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.step.ranks import HAS_BAD_GRADIENT, WENT_WRONG, first_bad_rank
from steadytrain.capture.step.run_stopped import RunStopped
from steadytrain.core.incident import Action, Finding, Incident, Samples
from steadytrain.core.model import Symptom
from steadytrain.statistics.run_away import left_course_at
from steadytrain.storage.ranks_of_run import BAD_RANKS, BAD_RANKS_MAX, FIRST_BAD_RANK
from steadytrain.storage.staged_bundle import update_incident

OBSERVED_INCIDENTS_MAX = 3
SKIPS_TOLD_MAX = 20
"""Skipped updates that are told on the terminal; the ledger has all."""


class Stopping:
    """Acts on such a step. ``investigator`` searches the first bad operation; None for no search."""

    def __init__(self, run: LiveRun, investigator: Investigator | None) -> None:
        self._run = run
        self._investigator = investigator
        self._guard = run.guard
        self._observed = 0
        self._skipped_updates = 0
        self._bad_ranks: dict[str, int] = {}

    def look_at_loss(self, root: Tensor) -> None:
        """Investigate a non-finite loss before its backward, while the variables of the script's lines still exist.

        Only on the CPU, where reading the loss costs nothing.
        """
        run = self._run
        with run.own_time.unseen:
            if root.device.type != "cpu" or math.isfinite(root.item()) or run.seen.early is not None:
                return
        if run.settings.policy != "stop" or run.scaling.scalers or self._investigator is None:
            return
        if not run.seen.micro_batches:
            return
        context = before_backward(run)
        with run.aside():
            run.seen.early = self._investigator.look_at_loss(context)

    def observe(self, stream: Stream, measured: Measurement) -> None:
        """Freeze the step and let the update happen."""
        run = self._run
        seen_before = _is_bad_already(stream)
        run.recorder.commit(stream, measured)
        if seen_before:
            return  # the detectors run on their schedule
        symptoms = run.recorder.detect(stream)
        run.recorder.tell_symptoms(symptoms)
        run.instruments(stream).raised(symptoms, measured.record.step)
        if self._observed >= OBSERVED_INCIDENTS_MAX:
            return
        self._observed += 1
        action = Action(measured.record.step, "observe", "observed", "policy observe: the update was applied")
        why = "policy observe: nothing was re-run inside the process; `steadytrain locate` re-runs it in a new one"
        path, incident = self._freeze(stream, measured, symptoms, action, Finding(None, why))
        run.recorder.add_incident(path, incident)

    def skip(self, stream: Stream, measured: Measurement, in_a_row: int) -> None:
        """Record the step whose update is skipped. The first ones are frozen; all of them are in the ledger."""
        run, step = self._run, measured.record.step
        left_out = measured.left_out
        seen_before = in_a_row > 1 if left_out is not None else _is_bad_already(stream)
        run.recorder.commit(stream, measured)
        run.recorder.set_fact("skipped_updates", self._skipped_updates + 1)
        self._skipped_updates += 1
        action = Action(step, run.settings.policy, "skipped-update", reason(measured))
        run.recorder.act(stream, action)
        path: Path | None = None
        samples: tuple[Samples, ...] = ()
        if not seen_before and (left_out is None or left_out.symptom):
            symptoms = self._symptoms_of_skip(stream, measured)
            run.instruments(stream).raised(symptoms, step)
            if self._observed < OBSERVED_INCIDENTS_MAX:
                self._observed += 1
                why = "nothing was re-run inside the process; `steadytrain locate` re-runs it in a new one"
                with run.guard.part("writing the incident bundle"):  # if that fails, the skip is reported all the same
                    path, incident = self._freeze(stream, measured, symptoms, action, Finding(None, why))
                    run.recorder.add_incident(path, incident)
                    samples = incident.samples
        if self._skipped_updates <= SKIPS_TOLD_MAX and not measured.is_of_another_rank:
            state = self._finite_state(stream, step, path)
            most = run.settings.max_skips if run.settings.policy == "skip" and left_out is None else 0
            run.tell(skip_message(step, reason(measured), (in_a_row, most), state, path, samples))

    def _symptoms_of_skip(self, stream: Stream, measured: Measurement) -> list[Symptom]:
        """An update that was refused for its size is in no baseline, so no detector raises it."""
        recorder, step = self._run.recorder, measured.record.step
        if measured.left_out is None:
            symptoms = recorder.detect(stream)
            recorder.tell_symptoms(symptoms)
            return symptoms
        signals = ("gradient_norm", "loss")
        values = {name: measured.record.scalars.get(name) for name in signals}
        numbers = {name: value for name, value in values.items() if value is not None}
        name, message = measured.left_out.symptom, f"{reason(measured)}; its update was skipped"
        symptom = Symptom(name, "warning", step, step, message, signals, numbers=numbers, stream=stream.name)
        recorder.report(stream, symptom)
        return [symptom]

    def _freeze(
        self,
        stream: Stream,
        measured: Measurement,
        symptoms: Sequence[Symptom],
        action: Action,
        finding: Finding,
    ) -> tuple[Path, Incident]:
        run = self._run
        samples: tuple[Samples, ...] = ()
        with self._guard.part("naming the samples of the batch"):
            samples = run.draws.samples_of(run.seen.micro_batches)
        account = Account(symptoms, action, finding, samples)
        path, incident = freeze_incident(
            run.recorder, self._guard, stream, run.seen, run.ring, measured, account, run.observer
        )
        run.incidents.append(path)
        run.symptom_incidents.frozen(symptoms)
        if (known := measured.bad_rank) is not None and known.is_origin and len(self._bad_ranks) < BAD_RANKS_MAX:
            self._bad_ranks[str(measured.record.step)] = known.rank
            run.recorder.set_fact(BAD_RANKS, self._bad_ranks)
        return path, incident

    def stop(self, stream: Stream, optimizer: torch.optim.Optimizer, measured: Measurement, *, can_rerun: bool) -> None:
        """Refuse the update: write the incident, find the first bad operation, end the process."""
        run = self._run
        measured.record = replace(measured.record, refused=True)
        frozen = self._record_refused(stream, measured)

        def finish(finding: Finding) -> RunStopped:
            return self._finish(stream, measured, frozen, finding)

        answer: Finding | LoopRerun = Finding(None, "no search for the first bad operation was made")
        if self._investigator is not None:
            answer = Finding(None, "steadytrain failed while it re-ran the step; see the warning above")
            with self._guard.part("re-running the step"), run.aside():
                step, loss_finite = measured.record.step, measured.loss_finite
                context = at_gate(run, stream, optimizer, step=step, loss_finite=loss_finite, can_rerun=can_rerun)
                answer = run.seen.early or self._investigator.investigate(context)
        if isinstance(answer, Finding):
            raise finish(answer)
        run.lap.begin(answer, stream, finish)

    def _record_refused(self, stream: Stream, measured: Measurement) -> tuple[Path, Incident] | None:
        """Write the step and its bundle. Returns the bundle; None if it could not be written."""
        run, step = self._run, measured.record.step
        frozen: tuple[Path, Incident] | None = None
        symptoms: list[Symptom] = []
        with self._guard.part("restoring buffers"):
            run.buffers.restore()
        what: Any = "refused-rest-of-update" if run.seen.moved_weights else "refused-update"
        action = Action(step, "stop", what, reason(measured))
        with self._guard.part("recording the refused step"):
            run.recorder.commit(stream, measured)
            symptoms = run.recorder.detect(stream)
        run.instruments(stream).at_incident(stream, step, measured.scale)
        with self._guard.part("writing the incident bundle"):
            unfinished = Finding(None, "the search for the first bad operation was cut off")
            frozen = self._freeze(stream, measured, symptoms, action, unfinished)
        with self._guard.part("writing the ledger"):
            run.recorder.open(stream).add_action(action)
        return frozen

    def _state(self, stream: Stream, step: int, frozen: tuple[Path, Incident] | None) -> str:
        """Describe the state of the weights after the refused update."""
        bad, rested = nonfinite_parameters(stream), self._run.seen.rested.get(stream.name)
        if not bad:
            return self._finite_state(stream, step, frozen[0] if frozen is not None else None)
        symptoms = [one for one in self._run.recorder.symptoms.values() if one.name == "nonfinite-weight"]
        first = min((one.first_step for one in symptoms if one.stream == stream.name), default=None)
        since = None if first is None else f"the update of step {first}" if first > 1 else "the first step"
        if since is None and breaks_at(stream, step):
            since = f"the update of step {step - 1}, or what the script did after it"
        good = last_good_snapshot(frozen[0]) if frozen is not None else None
        return damaged_state(bad, step, since, good, rested if since is None else None)

    def _finite_state(self, stream: Stream, step: int, bundle: Path | None) -> str:
        """The weights are finite and this update did not change them; an earlier one may have done harm."""
        left_at = left_course_at(stream.history.window(), step)
        if left_at is not None:
            return off_course(left_at, last_good_snapshot(bundle, left_at) if bundle is not None else None)
        return UNTOUCHED_AT_REST if self._run.seen.rested else UNTOUCHED

    def _finish(
        self, stream: Stream, measured: Measurement, frozen: tuple[Path, Incident] | None, finding: Finding
    ) -> RunStopped:
        run, step = self._run, measured.record.step
        stopped = run.stopped = RunStopped(f"steadytrain refused the update of step {step}")
        if frozen is not None:
            with self._guard.part("adding the located operation to the bundle"):
                complete = replace(frozen[1], finding=finding)
                update_incident(frozen[0], complete)
                run.recorder.add_incident(frozen[0], complete)
        with self._guard.part("reporting the incident"):
            self._find_origin(stream, measured, finding)
            why = reason(measured)
            state = PARTLY_APPLIED if run.seen.moved_weights else self._state(stream, step, frozen)
            path, samples = (frozen[0], frozen[1].samples) if frozen else (None, ())
            if rested := run.seen.rested.get(stream.name):
                state = f"{state}\n{not_recorded(rested, batch_kept=bool(run.seen.micro_batches))}"
            if not measured.is_of_another_rank:
                run.tell(stop_message(step, why, measured.bad, finding, state, path, samples))
            stopped = run.stopped = RunStopped(f"steadytrain refused the update of step {step}: {why}")
        return stopped

    def _find_origin(self, stream: Stream, measured: Measurement, finding: Finding) -> None:
        """Of several ranks with the same reduced gradients, the one that found the bad operation reports it."""
        known = measured.bad_rank
        if known is not None and not known.is_origin and stream.joint is not None:
            badness = WENT_WRONG if finding.located is not None else HAS_BAD_GRADIENT
            known = measured.bad_rank = first_bad_rank(badness, stream.joint)
        if known is not None and known.is_origin:
            self._run.recorder.set_fact(FIRST_BAD_RANK, known.rank)

    def rehearse(
        self, rehearsal: Rehearsal, stream: Stream, optimizer: torch.optim.Optimizer, *, can_rerun: bool
    ) -> None:
        """In a process launched to run a recorded step again: prepare it at the gate of the step before."""
        run = self._run
        run.leading.refresh(stream)
        with run.aside():
            context = at_gate(run, stream, optimizer, step=0, loss_finite=True, can_rerun=can_rerun)
            answer = rehearsal.prepare(context)

        def finish(finding: Finding) -> RunStopped:
            rehearsal.done(finding)
            return RunStopped("the recorded step was run again")

        if isinstance(answer, Finding):
            raise finish(answer)
        run.lap.begin(answer, stream, finish)

    def end_lap(self) -> RunStopped:
        """The script reached the optimizer again. Returns what ends the script."""
        return self._ended(self._run.lap.end(lambda rerun: rerun.gate()))

    def abandon_lap(self, why: str) -> None:
        """The script ended, failed or was interrupted during the lap. Finish the incident without it."""
        if self._run.rerun is not None:
            self._ended(self._run.lap.abandon(why))

    def _ended(self, ending: RunStopped) -> RunStopped:
        self._run.stopped = self._run.stopped or ending
        return ending


def _is_bad_already(stream: Stream) -> bool:
    """Whether the previous step was non-finite too: a run that stays NaN is one incident, not one per step."""
    window = stream.history.recent()
    if not len(window):
        return False
    loss_bad = bool(window.present["loss"][-1]) and not math.isfinite(window.signals["loss"][-1])
    return loss_bad or not bool(np.isfinite(window.gradient_norms[-1]).all())
