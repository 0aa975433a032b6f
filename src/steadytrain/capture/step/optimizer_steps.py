"""Handles the optimizer's step: the gate before the update, and recording and detection after the step.

Not here: the measurement at the gate (``gate``), and the handling of a non-finite step (``stopping``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from steadytrain.capture.incident.context import Rehearsal
from steadytrain.capture.incident.environment import model_facts
from steadytrain.capture.snapshots.good_state import nonfinite_parameters
from steadytrain.capture.step.broken_updates import FIRST_STATE, UpdateLooks, broken_update, good_state, stayed_finite
from steadytrain.capture.step.data_loaders import DataLoaders
from steadytrain.capture.step.gate import Measurement, measure
from steadytrain.capture.step.live_run import LiveRun
from steadytrain.capture.step.model_calls import ModelCalls
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.step.ranks import take_lost
from steadytrain.capture.step.run_stopped import RunStopped
from steadytrain.capture.step.script_frames import variable_of
from steadytrain.capture.step.skipping import Skipping
from steadytrain.capture.step.stopping import Stopping
from steadytrain.capture.tensors.precision import precision_facts
from steadytrain.core.living_objects import one_search

NAMES_MAX = 32
"""Optimizers of which the script's own name is recorded."""

SEARCHED = (nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler)
"""What the gates of the first steps look for in the process, several times."""

NOTES_STEP = 8
"""By this step the first rank has a run folder if it trains."""


class OptimizerSteps:
    """Serves all optimizers. A process with a ``rehearsal`` runs the recorded step again when it reaches it."""

    def __init__(
        self, run: LiveRun, stopping: Stopping, calls: ModelCalls, loaders: DataLoaders, rehearsal: Rehearsal | None
    ) -> None:
        self.begun: set[int] = set()
        """The optimizers, by id, whose step has begun since a gradient scaler last began one."""

        self._run = run
        self._stopping = stopping
        self._calls = calls
        self._loaders = loaders
        self._rehearsal = rehearsal
        self._skipping = Skipping(run)
        self._told_precision = False
        self._first: Stream | None = None
        self._update_looks: dict[int, UpdateLooks] = {}
        self._names: dict[str, str] = {}
        self._others: dict[str, Any] = {}

    def step_begins(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
        """Returns other arguments for ``step``, or None. Raises :class:`RunStopped` to refuse the update."""
        run = self._run
        if not run.updates_here(run.leading.stream_of(optimizer)):
            return None
        self.begun.add(id(optimizer))
        if run.stopped is not None:
            with run.guard.part("restoring buffers"):
                run.buffers.restore()
            raise run.stopped
        if run.rerun is not None:
            raise self._stopping.end_lap()
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)  # args[0] is the optimizer itself
        if not callable(closure):
            self._gate(optimizer, can_rerun=True)
            return self._skipping.arguments(optimizer, args, kwargs)

        micro_batches, losses = len(run.seen.micro_batches), len(run.seen.losses)

        def watched_closure() -> Any:
            # LBFGS evaluates several times per step; the last evaluation counts. Earlier accumulation stays.
            run.seen.evaluated_again(micro_batches, losses)
            loss = closure()
            self._gate(optimizer, can_rerun=False)
            return loss

        if "closure" in kwargs:
            return args, {**kwargs, "closure": watched_closure}
        return (args[0], watched_closure, *args[2:]), kwargs

    def step_ends(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        stream = self._run.leading.stream_of(optimizer)
        if not self._run.is_script() or stream is None:
            return
        with self._run.own_time, self._run.guard.part("recording a step"):
            self._skipping.give_back()
            if stream.pending is not None:
                self._finish(stream)
            if optimizer is stream.optimizers[-1]:
                self._updated(stream)
                self._between_steps(stream)

    def skip(self, optimizer: torch.optim.Optimizer) -> None:
        """A gradient scaler has skipped the step."""
        run = self._run
        if run.rerun is not None:  # the lap's gradients made the scaler skip, so the lap ends here
            raise self._stopping.end_lap()
        with run.guard.part("recording a skipped step"):
            stream = self._lead(optimizer, skipped=True)
            if stream is not None:
                stream.pending = self._measure(stream, optimizer, skipped=True)
                run.observer.gate(stream, run.seen, stream.pending)
                self._finish(stream)
                self._between_steps(stream)

    # -- the gate --------------------------------------------------------------------------------------------------

    def _gate(self, optimizer: torch.optim.Optimizer, *, can_rerun: bool) -> None:
        """Measure the loss and the gradients that ``optimizer`` is about to apply; may raise :class:`RunStopped`."""
        with one_search(*SEARCHED):
            self._measure_and_answer(optimizer, can_rerun=can_rerun)

    def _measure_and_answer(self, optimizer: torch.optim.Optimizer, *, can_rerun: bool) -> None:
        run = self._run
        looked: list[tuple[Stream, Measurement]] = []
        whole = False
        with run.guard.part("the gate"):
            looked += self._look(optimizer, can_rerun=can_rerun)
            whole = True
        if not whole and not run.guard.gpu_failed:
            run.forget_step()  # else the batches of all later steps would accumulate
        for stream, measured in looked:
            if stream.pending is not None and stream.pending.committed:
                continue  # a closure runs again in a step that is already recorded as an incident
            answer = self._answer(stream, optimizer, measured, can_rerun=can_rerun)
            stream.pending = measured
            with run.own_time.unseen, run.guard.part("the tape at the gate"):
                run.observer.gate(stream, run.seen, measured)
            if answer == "skip" or (run.observer.replays and run.observer.skips(measured)):
                self._skip(stream, measured)
                if not can_rerun:
                    self._skipping.withhold(stream)
                continue
            if not measured.is_incident or self._rehearsal is not None or run.observer.replays:
                continue
            if answer == "observe":
                with run.guard.part("writing an incident"):
                    self._stopping.observe(stream, measured)
                continue
            stream.pending = None
            try:
                self._stopping.stop(stream, optimizer, measured, can_rerun=can_rerun)
            except Exception as error:  # refuse the update even if our own code failed on the way
                run.guard.report("handling the incident", error)
                stopped = run.stopped = RunStopped(f"steadytrain refused the update of step {measured.record.step}")
                raise stopped from None

    def _answer(
        self, stream: Stream, optimizer: torch.optim.Optimizer, measured: Measurement, *, can_rerun: bool
    ) -> str | None:
        """What is done about this update: ``skip``, ``stop`` or ``observe``; None to make it."""
        run = self._run
        self._skipping.over(stream)
        if run.observer.replays or self._rehearsal is not None:
            return None
        answer: str | None = None
        if not measured.is_incident:
            if measured.record.skipped:
                return None
            with run.guard.part("steering at the gate"):
                measured.left_out = run.steering.finite(stream, measured)
                measured.factor = run.steering.gradient_factor
            if measured.left_out is not None:
                if self._skipping.why_not(stream, optimizer, measured, can_rerun=can_rerun) is None:
                    answer = "skip"
                else:
                    measured.left_out = None
        elif run.settings.policy in ("stop", "observe"):
            answer = run.settings.policy
        else:
            answer = self._answer_nonfinite(stream, optimizer, measured, can_rerun=can_rerun)
        if answer == "skip":
            measured.record = replace(measured.record, refused=True)
        return answer

    def _answer_nonfinite(
        self, stream: Stream, optimizer: torch.optim.Optimizer, measured: Measurement, *, can_rerun: bool
    ) -> str:
        run = self._run
        answer = "stop"
        why: str | None = "steadytrain failed; see the warning above"
        with run.guard.part("skipping an update"):
            why = self._skipping.why_not(stream, optimizer, measured, can_rerun=can_rerun)
            answer = run.steering.nonfinite(stream, measured, why)
        if why is not None and answer == "stop":
            run.tell(f"step {measured.record.step} cannot be skipped: {why}")
        return answer

    def _between_steps(self, stream: Stream) -> None:
        if not self._run.observer.replays:
            with self._run.guard.part("steering between two steps"):
                self._run.steering.updated(stream)

    def _skip(self, stream: Stream, measured: Measurement) -> None:
        measured.record = replace(measured.record, refused=True)
        in_a_row = self._skipping.begin(stream, measured.record.step)
        with self._run.guard.part("restoring buffers"):
            self._run.buffers.restore()
        if not self._run.observer.replays:
            with self._run.guard.part("recording a skipped update"):
                self._stopping.skip(stream, measured, in_a_row)

    def _look(self, optimizer: torch.optim.Optimizer, *, can_rerun: bool) -> Iterator[tuple[Stream, Measurement]]:
        """Yields the stream and the measurement of this step if ``optimizer`` leads it."""
        stream = self._lead(optimizer)
        if stream is None:
            return
        if self._rehearsal is not None and self._rehearsal.begins_after(stream.own_steps + 1):
            self._stopping.rehearse(self._rehearsal, stream, optimizer, can_rerun=can_rerun)
            return
        yield stream, self._measure(stream, optimizer, skipped=False)

    def _lead(self, optimizer: torch.optim.Optimizer, *, skipped: bool = False) -> Stream | None:
        run = self._run
        stream, run.seen = run.leading.lead(
            optimizer, run.seen, saw_loss=run.saw_loss, skipped=skipped, in_backward=run.in_backward
        )
        return stream

    def _measure(self, stream: Stream, optimizer: torch.optim.Optimizer, *, skipped: bool) -> Measurement:
        run = self._run
        with run.own_time:
            self._updated(stream)
            run.leading.refresh(stream)
            stream.writes.gate(stream)
            with run.guard.part("steering at the gate"):
                run.steering.gate_begins(stream)
        instruments, step = run.instruments(stream), stream.step + 1
        run.seen.waited_s += self._loaders.take_wait_s()
        with run.own_time.unseen:
            measured = measure(
                stream,
                optimizer,
                run.seen,
                run.scaling,
                skipped=skipped,
                weigh=instruments.weighs(step),
                time_s=run.clock(),
                own_s=run.own_time.so_far(),
            )
            if lost := take_lost(run.settings.run_dir):
                run.note(lost)
            if not skipped:
                instruments.before_update(stream, step, measured.scale)
        return measured

    # -- the step has ended ----------------------------------------------------------------------------------------

    def _updated(self, stream: Stream) -> None:
        """All optimizers of ``stream`` have stepped."""
        if stream.updating:
            stream.updating = False
            stream.writes.updated(stream)
            is_first, self._first = self._first is stream, None if self._first is stream else self._first
            looks = self._update_looks.get(id(stream))
            if looks is not None and not self._run.observer.replays:
                self._look_at_update(stream, looks, is_first=is_first)
            self._run.instruments(stream).after_update(stream, stream.step)
            self._run.observer.updated(stream)

    def _look_at_update(self, stream: Stream, looks: UpdateLooks, *, is_first: bool) -> None:
        """Report weights that the update made non-finite. The first update is always checked: most such faults show
        there."""
        run, step = self._run, stream.step
        bad = nonfinite_parameters(stream) if is_first else looks.look(stream)
        if not bad:
            return
        first = step if is_first else looks.first_step
        if not stayed_finite(stream, first):
            return
        good = FIRST_STATE
        if not is_first:
            with run.guard.part("looking for the last good state"):
                good = good_state(run.recorder.begin().path, before=first)
        symptom = broken_update(stream, bad, first=first, last=step, good=good)
        run.recorder.report(stream, symptom)
        run.recorder.tell_symptoms([symptom])
        run.instruments(stream).raised([symptom], step)
        run.symptom_incidents.looked(stream, [symptom])

    def _name(self, stream: Stream) -> None:
        """Record the script's own name of the stream's first optimizer, and the model of a further stream."""
        optimizers = stream.optimizers
        if optimizers and len(self._names) < NAMES_MAX and (name := variable_of(optimizers[0])):
            self._names[stream.name] = name
            self._run.recorder.set_fact("stream_names", dict(self._names))
        if stream is not self._run.streams[0] and len(self._others) < NAMES_MAX:
            self._others[stream.name] = {
                **model_facts(list(stream.roots()), stream.parameters),
                "optimizer": type(optimizers[0]).__name__ if optimizers else None,
            }
            self._run.recorder.set_fact("other_models", dict(self._others))

    def _finish(self, stream: Stream) -> None:
        run = self._run
        measured, stream.pending = stream.pending, None
        assert measured is not None
        batches, stream.step = run.seen.micro_batches, measured.record.step
        run.leading.stepped(stream, run.seen)
        run.forget_step()
        run.ring.add(stream.step, batches)
        if run.turns.stepped(stream):
            run.recorder.set_fact("optimizers_in_turn", len(run.streams))
        run.recorder.commit(stream, measured)
        with run.guard.part("keeping the tape of the step"):
            run.observer.step_ended(stream, run.recorder.begin().path if run.recorder.recording else None)
        instruments = run.instruments(stream)
        if measured.record.skipped or measured.record.refused:
            instruments.skip_update(stream, stream.step)
        else:
            stream.updating = True
        found = run.recorder.look(stream)
        told, frozen = run.steering.found(stream, found)
        run.recorder.tell_symptoms(told)
        instruments.raised(found, stream.step)
        instruments.saw(stream.step, measured.record.gradient_norms, measured.record.scalars.get("learning_rate"))
        run.symptom_incidents.looked(stream, frozen)
        if stream.own_steps == NOTES_STEP:
            run.tell_notes()
        if stream.own_steps == 1:
            with run.guard.part("naming the optimizer"):
                self._name(stream)
            run.modules.settle()
            self._update_looks.pop(id(stream), None)
            norm = measured.record.scalars.get("parameter_norm")
            if not measured.record.skipped and norm is not None and math.isfinite(norm) and not measured.is_incident:
                self._first = stream
                self._update_looks[id(stream)] = UpdateLooks()
        # The optimizer has its state only after the first update. A model found in the first step has no recorded call.
        if not self._told_precision and not measured.record.skipped and (batches or stream.own_steps > 1):
            self._told_precision = True
            with run.guard.part("recording the number formats"):
                autocast, logits = batches[-1].autocast if batches else None, self._calls.logits
                facts = precision_facts(stream.parameters, stream.optimizers, autocast=autocast, logits=logits)
                run.recorder.set_fact("precision", facts)
