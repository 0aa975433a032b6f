"""The watcher: it follows the training loop, guards the update, and freezes incidents.

::

      data loader        root module            loss             optimizer.step
    ──► fetch ──────► forward_begins ──► backward_begins ──► step_begins ──► (update) ──► step_ends ──┐
    ▲   remember       record inputs,     remember the        THE GATE:                   record the  │
    │   the batch      RNG, buffers       loss (no sync)      one look at loss            step, run   │
    │                  forward_ends       backward_ends       and gradients               detectors   │
    └─────────────────────────────────────────────────────────────────────────────────────────────────┘

At the gate a non-finite loss or gradient becomes an incident: the bundle is written, and under the policy ``stop`` the
update is refused and the process ends with status 70. Everything runs on the training thread. Every entry point is
guarded: an error of our own is reported once and training continues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from steadytrain.capture.hooks.fail_open import Guard, Tell
from steadytrain.capture.hooks.model_discovery import find_model, name_parameters, optimizer_parameters
from steadytrain.capture.hooks.patches import Patches
from steadytrain.capture.incident.context import Investigator, Rehearsal
from steadytrain.capture.incident.incident import script_facts
from steadytrain.capture.incident.script_failure import how_it_ended, keep_evidence
from steadytrain.capture.looks.script_look import ScriptLook
from steadytrain.capture.looks.watched_ranks import watched_ranks
from steadytrain.capture.settings import Settings
from steadytrain.capture.snapshots.loaded_states import LoadedStates
from steadytrain.capture.snapshots.saved_checkpoints import SavedCheckpoints
from steadytrain.capture.snapshots.stream_rewinds import recorder_of
from steadytrain.capture.step.data_loaders import DataLoaders
from steadytrain.capture.step.dropped_optimizers import called_by_us
from steadytrain.capture.step.foreign_optimizers import ForeignOptimizers
from steadytrain.capture.step.gradient_events import GradientEvents
from steadytrain.capture.step.hand_updates import HandUpdates
from steadytrain.capture.step.live_run import LiveRun
from steadytrain.capture.step.model_calls import ModelCalls
from steadytrain.capture.step.observers import CompositeObserver, StepObserver
from steadytrain.capture.step.optimizer_steps import OptimizerSteps
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.step.pacing import Pacing
from steadytrain.capture.step.recording import Record, Recorder
from steadytrain.capture.step.resting import Resting
from steadytrain.capture.step.run_stopped import STOPPED_STATUS, RunStopped
from steadytrain.capture.step.script_evaluations import ScriptEvaluations
from steadytrain.capture.step.script_guards import ScriptGuards
from steadytrain.capture.step.steered_steps import SteeredSteps
from steadytrain.capture.step.step_batches import StepBatches
from steadytrain.capture.step.stopping import Stopping
from steadytrain.core.model import Symptom
from steadytrain.grouping.stories import Story

EVERY_STEP_LEVEL = "full"
"""The level at which no run rests."""

launched: Watcher | None = None
"""The watcher of a process that was launched to replay recorded steps; ``watch`` in the script returns it."""


class Watcher:
    """Follows the training of one process. ``close`` removes every patch and hook."""

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
        def observed(note: Callable[[str], None]) -> StepObserver:
            return observer or recorder_of(settings, note, recording=rehearsal is None)

        how: dict[str, Any] = {"observer": observed, "rehearses": rehearsal is not None, "clock": clock}
        run = self._run = LiveRun(settings, tell, record, events=self, **how)
        self.settings, self.aside = settings, run.aside
        self._stopping = Stopping(run, investigator)
        guards = self._guards = ScriptGuards(run, investigator)
        self._calls = ModelCalls(run, guards, self._stopping.look_at_loss)
        self._loaders = DataLoaders(run)
        steps = OptimizerSteps(run, self._stopping, self._calls, self._loaders, rehearsal)
        gradients = GradientEvents(run, steps, guards)
        self._loads = LoadedStates(run.guard, run.note, self.set_fact, self._state_loaded)
        # The entry points for the patches and for manual updates, bound to the parts that handle them.
        self.forward_begins, self.forward_ends = self._calls.forward_begins, self._calls.forward_ends
        self.backward_begins, self.backward_ends = self._calls.backward_begins, self._calls.backward_ends
        self.backward_failed, self.loss_given = self._calls.backward_failed, self._calls.loss_given
        self.fetch_begins, self.fetch_ends = self._loaders.fetch_begins, self._loaders.fetch_ends
        self.samples_drawn, self.step_batch = self._loaders.samples_drawn, self._loaders.step_batch
        self.gradients_zeroed, self.scaler_scales = gradients.gradients_zeroed, gradients.scaler_scales
        self.scaler_step_begins, self.scaler_step_ends = gradients.scaler_step_begins, gradients.scaler_step_ends
        self.clip, self.clip_by_value = gradients.clip, gradients.clip_by_value
        self.step_begins, self.step_ends = steps.step_begins, steps.step_ends
        saved = SavedCheckpoints(run, settings.checkpoint_bytes_max, self._loads.resumed.left_out.saving)
        self._saved, self.save_ends, self.file_read = saved, saved.ends, saved.file_read
        self.resting: Resting | None = None
        if settings.pace is not None and settings.level.name != EVERY_STEP_LEVEL and run.recorder.recording:
            self.resting = Resting(run, Pacing(settings.pace), self._calls, self._loaders, steps)
            for name, entry in self.resting.entry_points(self).items():
                setattr(self, name, entry)
        if run.recorder.recording:
            if settings.steering is not None:
                self.follow(SteeredSteps(run))
            look = ScriptLook(run, self._loaders.datasets.rows_of, self._loads, self._loaders.orders)
            for guest in (self._saved, look, watched_ranks(run), ScriptEvaluations(run)):
                self.follow(guest)
        run.leading.dropped = self._optimizers_dropped
        self._foreign = self._calls.foreign = gradients.foreign = self._loaders.foreign = ForeignOptimizers(run, self)
        self._patches = Patches(self, run.guard)
        if self.resting is not None:
            self.resting.patches = self._patches

    def _state_loaded(self) -> None:
        self._run.state_loaded()
        self._foreign.state_loaded()

    def follow(self, guest: StepObserver) -> None:
        """Add an observer that receives every event and changes nothing."""
        self._run.observer = CompositeObserver(self._run.observer, guest)

    # -- what the script does --------------------------------------------------------------------------------------

    def optimizer_made(self, optimizer: torch.optim.Optimizer) -> None:
        run = self._run
        if run.trains_here():
            self._end_rest()
            run.optimizer_made(optimizer)
            with run.guard.part("letting go of earlier models"):
                run.leading.loosen(lambda stream: script_facts(stream, list(stream.roots())))
                run.release_done()
            with run.guard.part("finding the model"):
                run.modules.watch_model(find_model(optimizer_parameters([optimizer])))

    def _optimizers_dropped(self) -> None:
        """The script has dropped a model's optimizers: release it now, or at the next call if a batch is unfinished."""
        run = self._run
        if (
            run.is_script()
            and not (run.seen.micro_batches or run.seen.losses or run.in_backward)
            and not called_by_us()
        ):
            self._end_rest()
            with run.guard.part("letting go of earlier models"), run.aside():
                run.release_done()

    def watch_model(self, model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Watch a model, and an optimizer if there is one, that already exist."""
        if optimizer is not None:
            self.optimizer_made(optimizer)
        with self._run.guard.part("watching the model"):
            parameters = optimizer_parameters([optimizer]) if optimizer is not None else list(model.parameters())
            self._run.modules.watch_model(name_parameters([model], parameters))

    def set_fact(self, name: str, value: Any) -> None:
        """Set a fact of the run; it is kept until there is a run folder."""
        if not self._run.closed:
            self._run.recorder.set_fact(name, value)

    def load_watch(self) -> LoadedStates | None:
        run = self._run
        return self._loads if run.is_script() and run.rerun is None and not run.rehearses else None

    def saving(self, optimizer: torch.optim.Optimizer) -> None:
        """The script reads an optimizer's state dict. For the first optimizer, write a fingerprint of its state."""
        run = self._run
        stream = run.leading.stream_of(optimizer)
        if stream is None or stream is not run.streams[0] or optimizer is not stream.optimizers[0]:
            return
        if self.load_watch() is not None and run.recorder.recording and stream.step and stream.model is not None:
            with run.guard.part("noting what is saved"), run.aside():
                self._loads.save(
                    run.recorder.begin().path,
                    run=run.settings.run_name,
                    step=stream.step,
                    roots=list(stream.roots()),
                    optimizer=optimizer,
                    names=stream.model.names,
                    scaler=next(iter(run.scaling.scalers.values()), None),
                )

    def save_begins(self, saved: Any, target: Any) -> Any:
        """Any thread of the script saves."""
        if self._run.is_over() or not self._run.recorder.recording:
            return None
        if self._run.is_script():
            self._end_rest()
        return self._saved.begins(saved, target)

    def _end_rest(self) -> None:
        if self.resting is not None:
            self.resting.end()

    def compile_called(self, subject: Any, result: Any, how: dict[str, Any]) -> None:
        if not self._run.is_script():
            return
        self._end_rest()
        with self._run.guard.part("watching compiled code"):
            self._run.activations.compile_called(subject, how)
            self._run.modules.compile_called(subject, result)

    # -- the end ---------------------------------------------------------------------------------------------------

    def script_failed(self, error: BaseException) -> None:
        """The script is about to end with ``error``. Keep evidence of memory and communication failures."""
        if self._run.is_over() or not self._run.recorder.recording:
            return
        if self.resting is not None:
            self.resting.hand_over()
        if not isinstance(error, RunStopped):
            with self._run.guard.part("naming what ended the script"):
                self._run.failure = how_it_ended(self._run, error) or self._run.failure
            self._guards.script_ends(error)
        with self._run.guard.part("keeping evidence of the failure"):
            keep_evidence(self._run, error)

    def script_over(self, error: BaseException | None) -> None:
        """In a launched process, or a copy of it: the script is over, with ``error`` if it failed."""
        self._guards.script_ends(error)

    def abandon_rerun(self, why: str) -> None:
        """The script ended, failed or was interrupted during the lap. Finish the incident without it."""
        self._stopping.abandon_lap(why)

    def close(self, *, ended: str, exit_status: int | None = None) -> None:
        """Remove all hooks and patches, and record how the run ended. Idempotent."""
        run = self._run
        if run.is_over():
            return
        with run.guard.part("ending a rest, or an update by hand"):
            if self.resting is not None:
                self.resting.close()
            self._foreign.close()
        with run.guard.part("one more lap"):
            self.abandon_rerun("the script ended before it reached the optimizer again")
        with run.guard.part("looking at the last batch"):
            self._guards.script_ends(None)
        run.closed = True
        run.leading.close()
        with run.guard.part("looking at the last batch"):
            self._guards.close()
        for what, undo in (
            ("removing the patches", self._patches.remove),
            ("removing the wrappers of other optimizers", self._foreign.remove),
            ("removing the hooks", run.modules.remove),
            ("removing the hooks of outputs", run.activations.remove),
        ):
            with run.guard.part(what):
                undo()
        if run.stopped is None:
            with run.guard.part("the last look of the detectors"):
                run.observer.script_ended()
                for stream in run.streams:
                    found = run.recorder.detect(stream)
                    run.recorder.tell_symptoms(found)
                    run.symptom_incidents.looked(stream, found)
        with run.guard.part("freezing symptoms at the end"):
            run.symptom_incidents.close(run.streams if run.stopped is None else ())
        with run.guard.part("taking back what holds"):
            run.steering.close()
        with run.guard.part("the last measurements"):
            for stream in run.streams:
                run.instruments(stream).finish()
        with run.guard.part("closing the tape"):
            finished = ended == "finished" or run.stopped is not None
            run.observer.close(finished=finished, noted=not run.symptom_incidents.all_covered)
        with run.guard.part("closing the run folder"):
            facts = {"ended": ended, "exit_status": exit_status, "notes": run.notes}
            if run.failure is not None and run.stopped is None:
                facts["failure"] = run.failure
            if run.scaling.clipped_before_unscaling:
                facts["clipped_before_unscaling"] = run.scaling.clipped_before_unscaling
            if run.stopped is not None:
                facts |= {"ended": "stopped", "exit_status": STOPPED_STATUS}
            run.recorder.close(run.streams, facts)

    def forget(self) -> None:
        """In a forked child, which is not watched: leave everything that the parent owns alone."""
        run = self._run
        run.closed = True
        run.leading.close()
        for part in (run.recorder, run.observer, run.symptom_incidents, run.steering):
            with run.guard.part("letting go in a forked process"):
                part.forget()

    # -- what is known ---------------------------------------------------------------------------------------------

    @property
    def hand(self) -> HandUpdates:
        """What is known of updates that no optimizer makes."""
        return self._foreign.hand

    @property
    def guard(self) -> Guard:
        return self._run.guard

    @property
    def recorder(self) -> Recorder:
        return self._run.recorder

    @property
    def observer(self) -> StepObserver:
        return self._run.observer

    @property
    def streams(self) -> list[Stream]:
        """One for each optimizer, or for several that step together. The first is the recorded one."""
        return self._run.streams

    @property
    def stopped(self) -> RunStopped | None:
        """The exception that ends the script after a refused update, else None."""
        return self._run.stopped

    @property
    def notes(self) -> list[str]:
        """The notes that this run has printed."""
        return self._run.notes

    @property
    def failure(self) -> str | None:
        """What ended the script, in one line, if it did not end normally."""
        return self._run.failure

    @property
    def let_go(self) -> list[str]:
        """The batches for which the script itself made no update, one line for each kind."""
        return self._guards.told()

    @property
    def incidents(self) -> list[Path]:
        """The bundles of this run."""
        return self._run.incidents

    @property
    def backward_calls(self) -> int:
        return self._calls.backward_calls

    @property
    def recorded_steps(self) -> int | None:
        """The number of steps on record, None if every step is."""
        by_hand = max((one.own_steps for one in self.streams if one.updates_before), default=None)
        return self.resting.recorded_steps if by_hand is None and self.resting is not None else by_hand

    @property
    def detector_names(self) -> list[str]:
        """The names of the detectors that have input data, as `explain` knows them."""
        return self.recorder.detector_names

    @property
    def has_folder(self) -> bool:
        """Whether this process has written into the run folder."""
        return self.recorder.begun

    @property
    def stories(self) -> Sequence[Story]:
        """The groups of symptoms that belong together in each stream, in order; shown when the run closes."""
        return self.recorder.stories

    @property
    def symptoms(self) -> Collection[Symptom]:
        """The symptoms so far."""
        return self.recorder.symptoms.values()

    @property
    def memory_bytes(self) -> int:
        """Memory that steadytrain itself uses: the ring of batches, the history, and samples of tensors."""
        return self._run.memory_bytes

    def dataset_key(self, number: int) -> int | None:
        """The ``id`` of the data set with this ``number``, in the order in which the script first reads from them."""
        return self._loaders.datasets.key_of(number)

    @property
    def step_batches(self) -> StepBatches | None:
        """The batches that a script passes to its own step function, if it names one."""
        return self._calls.step_batches

    @step_batches.setter
    def step_batches(self, batches: StepBatches | None) -> None:
        self._calls.step_batches = batches

    def evaluated(self, metrics: Mapping[str, float]) -> None:
        """Add evaluation metrics after the last step of the first stream."""
        for stream in self.streams[:1]:
            stream.history.evaluated(stream.step, metrics)
