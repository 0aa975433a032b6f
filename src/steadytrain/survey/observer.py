"""The observer of a surveyed script: a replay or the script alone, with every subject measured on the way."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from steadytrain.capture.hooks.guarded_events import MISSING
from steadytrain.capture.step.gate import Measurement
from steadytrain.capture.step.input_recorder import MicroBatch, RandomState
from steadytrain.capture.step.observers import StepObserver
from steadytrain.capture.step.optimizer_streams import StepInProgress, Stream
from steadytrain.replay.verdict import Replayed as Outcome
from steadytrain.survey.batch_reruns import reruns
from steadytrain.survey.call_findings import Seen, add_listed
from steadytrain.survey.calls import Calls
from steadytrain.survey.graph_cuts import cut_off
from steadytrain.survey.held_gradient import HeldGradient
from steadytrain.survey.input_facts import Batches, named_tensors
from steadytrain.survey.labels import Labels
from steadytrain.survey.loop_order import Loop
from steadytrain.survey.module_calls import Modules
from steadytrain.survey.moment_facts import LISTED_MAX
from steadytrain.survey.outlier_rows import Rows
from steadytrain.survey.planned_steps import steps_planned
from steadytrain.survey.policy_entropy import PolicyEntropy
from steadytrain.survey.stored_rows import changed_by_reading
from steadytrain.survey.surveyed_steps import AROUND_ONSET, FIRST_STEPS, LAST_STEPS, Alone, ReplayedSteps
from steadytrain.survey.tensor_values import plain
from steadytrain.survey.training_state import State
from steadytrain.survey.unseeded_rows import drawn_anew

NOTES_MAX = 16
EARLIER_MIN = 8
"""Steps of other optimizers before the first one of a stream after which theirs is another training. Optimizers that
take turns do not let one wait so long."""

SHARE_SLACK = 0.1
"""Tolerance for a factor of one over the number of backward calls, which divides the loss by them."""


class Observed(StepObserver):
    """Delegates to ``inner`` and measures. ``done`` gets the facts once and does not return.

    Args:
        until: the last surveyed step.
        onset: the step to inspect most closely, by default the last.
        first: the first replayed step.
        notes: known gaps.
    """

    replays = True

    def __init__(
        self,
        inner: Alone | ReplayedSteps,
        *,
        until: int,
        onset: int | None,
        first: int,
        done: Callable[[dict[str, Any]], None],
        notes: list[str],
    ) -> None:
        self._inner = inner
        inner.finished = self._replayed
        self._until, self._onset, self._first = until, min(onset or until, until), first
        self._done, self._notes = done, notes
        self._outcome: Outcome | str | None = None
        self._empty_masks: list[dict[str, Any]] = []
        self._steps: list[int] = []
        self._gates = self._others = 0
        self._losses: list[tuple[int, float]] = []
        self._scalers: Mapping[int, Any] = {}
        self.calls, self.loop, self.state = Calls(), Loop(), State()
        self.calls.step_now, self.labels, self.batches = lambda: inner.now, Labels(), Batches()
        self.modules, self.rows = Modules(self.calls), Rows()
        self.entropy = PolicyEntropy(lambda: self.calls.active)
        self._planned: int | None = None
        self._stream: Stream | None = None
        self._held = HeldGradient()
        self._micro_batches: list[MicroBatch] = []

    @property
    def scalers(self) -> Mapping[int, Any]:
        return self._scalers

    @scalers.setter
    def scalers(self, scalers: Mapping[int, Any]) -> None:
        self._scalers = self._inner.scalers = scalers

    def begin(self) -> None:
        """Starts observing, right after torch is imported."""
        self.loop.watch()
        self.modules.watch()
        self._look("entropy", self.entropy.watch)
        self.calls.look(True)

    # -- the observer ----------------------------------------------------------------------------------------------

    def fetch_begins(self, dataset: int) -> Any:
        return self._inner.fetch_begins(dataset)

    def fetched(self, dataset: int, batch: Any) -> Any:
        other = self._inner.fetched(dataset, batch)
        self._look("batches", lambda: self.batches.fetched(dataset, batch if other is MISSING else other))
        return other

    def call_begins(self, module: nn.Module, call: MicroBatch, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        changed = self._inner.call_begins(module, call, args, kwargs)
        given = (args, kwargs) if changed is None else changed
        self._look("settings", lambda: self.calls.settings.called(self._inner.now, module, given))
        if self.calls.active:
            self._micro_batches.append(call)
            self.calls.masks.call, self.calls.masks.inside = len(self._micro_batches), True
            self._look("modules", lambda: self.modules.root_called(module))
            self._look("operations", self.calls.watch_functions)
            self._look("batches", lambda: self.batches.given(self._inner.now, (args, kwargs), given))
            self._look("writes", lambda: self.calls.writes.given(self._inner.now, named_tensors(*given)))
            self._look("rows", lambda: self.rows.called(self._inner.now, named_tensors(given[0], given[1])))
        return changed

    def forward_ended(self, call: MicroBatch | None, random: RandomState) -> None:
        self.calls.masks.inside = False
        self._inner.forward_ended(call, random)

    def backward_begins(self) -> None:
        if self.calls.active:
            self._look("loop", self._backward_begins)
        self._inner.backward_begins()

    def gate(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        step = self._inner.now
        if stream.name == self._inner.stream:
            self._stream = stream
        if self.calls.active:  # a derivative that the script takes is no backward
            self.loop.backward(len(measured.losses), own=stream is self._stream)
        if stream is not self._stream:
            self.state.of_others(stream)
            self._others += 1
            if self._others >= EARLIER_MIN and not self._steps:
                self._leave_out_earlier()
        elif isinstance(self._inner, ReplayedSteps):
            self._inner.restore_settings(stream)
        if stream is self._stream and not self._gates and self._others >= EARLIER_MIN:
            self.loop.forget_schedules()
        self._gates += stream is self._stream
        self._losses += [(step, loss) for loss in measured.losses[:1]]
        if stream is self._stream:
            groups = [group for one in stream.optimizers for group in one.param_groups]
            self._look("settings", lambda: self.calls.settings.gate(step, groups))
        if self.calls.active and stream is self._stream:
            self._steps.append(step)
            self.entropy.step_ended()
            self.loop.skips += bool(measured.record.skipped)
            self._look("loop", self._update_begins)
            self._look("state", lambda: self.state.gate(stream, step))
            self._look("labels", lambda: self.labels.step(step, self.calls, self.batches))
            self._look("modules", lambda: self.modules.step(self.state.names))
            if step == self._onset:
                self._look("batches", lambda: self.batches.mark(step))
                self._look("labels", lambda: self.labels.mark(step))
                self._look("rows", self._mark_rows)
            if len(self._steps) == 1:
                self._look("modules", lambda: self.modules.first_gradients(self.state.roots))
            if step >= self._until:
                self._look("modules", lambda: self.modules.gradients(self.state.roots))
        self._inner.gate(stream, seen, measured)

    def let_go(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        if isinstance(self._inner, ReplayedSteps):
            if self._inner.awaits_let_go:
                self.gate(stream, seen, measured)
        elif self._inner.now >= self._until:
            self.gate(stream, seen, measured)
            self.finish()

    def updated(self, stream: Stream) -> None:
        if self.calls.active and stream is self._stream:
            self._look("state", lambda: self.state.updated(stream))
            self.loop.update_ended()
        self._inner.updated(stream)

    def calls_forgotten(self) -> None:
        self._inner.calls_forgotten()

    def step_ended(self, stream: Stream, folder: Path | None) -> None:
        self._inner.step_ended(stream, folder)
        if stream is not self._stream:
            return
        if isinstance(self._inner, Alone) and (self._inner.now > self._until or self._inner.is_late):
            self.finish()
        self.calls.look(self._looks_at(self._inner.now))
        if self.calls.active:
            self._micro_batches = []
            self.calls.step_begins()
        self.modules.step_begins()

    @property
    def seen_steps(self) -> int:
        """The number of gates that were surveyed."""
        return len(self._steps)

    # -- the end ---------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Collects the facts of all subjects and passes them to ``done``."""
        self.calls.look(False)
        facts: dict[str, Any] = {}
        for name, part in (
            ("state", self.state.finish),
            ("labels", self.labels.finish),
            ("batches", self.batches.finish),
            ("modules", lambda: self.modules.finish(self.state.names)),
            ("calls", self._of_calls),
            ("loop", self._of_loop),
            ("the steps", self._of_steps),
            ("runs of the last batch", self._of_reruns),
        ):
            self._look(name, lambda part=part: facts.update(part()))  # type: ignore[misc]
        self._look("rows", lambda: facts.update(self.rows.finish(facts)))
        self._look("stored rows", lambda: facts.update(self._of_stored_rows()))
        facts["survey_notes"] = [*self._notes, *self.loop.notes.values(), *self.calls.seen.notes][:NOTES_MAX]
        self._done({name: plain(value) for name, value in facts.items() if value is not None})

    def _mark_rows(self) -> None:
        last = self.labels.last
        models = [call.module for call in self._micro_batches]
        named = [getattr(getattr(model, "config", None), "_name_or_path", None) for model in models]
        folder = next((name for name in named if isinstance(name, str) and name), None)
        self._empty_masks = list(self.calls.masks.found)
        target = None if last is None else last.target
        if self._empty_masks:
            self.rows.mark(target, folder, call=self._empty_masks[0]["call"])
        else:
            places = [place for place, one in enumerate(self.calls.step_losses) if one is last]
            self.rows.mark(target, folder, call_of_target=(*places, 0)[0], losses=len(self.calls.step_losses))
        self._planned = steps_planned(self._inner.now)

    def _replayed(self, outcome: Outcome | str) -> None:
        self._outcome = outcome
        self.finish()

    def _leave_out_earlier(self) -> None:
        """What was seen so far belongs to a training before this one."""
        self.calls.seen, self.calls.looked_up, self.calls.step_losses = Seen(), [], []
        self.labels, self.batches, self.rows = Labels(), Batches(), Rows()
        self.loop.forget()
        self._micro_batches, self._losses = [], []

    def _looks_at(self, step: int) -> bool:
        return step <= FIRST_STEPS or step > self._until - LAST_STEPS or abs(step - self._onset) <= AROUND_ONSET

    def _look(self, name: str, look: Callable[[], object]) -> None:
        try:
            with self.calls.aside():
                look()
        except Exception as error:  # costs its facts, not the survey
            add_listed(self._notes, f"{name} could not be read: {type(error).__name__}: {error}")

    def _backward_begins(self) -> None:
        self.calls.made.contexts.backward_begins()
        parameters = self._stream.parameters if self._stream is not None else []
        self.loop.backward_begins(self._held.backward_begins(parameters, self.loop.clips))

    def _update_begins(self) -> None:
        self.loop.update_begins(replaced=self._held.replaced, rescaled=self._held.rescaled(self.loop.clips))

    # -- facts that combine several subjects -----------------------------------------------------------------------

    def _of_calls(self) -> dict[str, Any]:
        seen = self.calls.seen
        backwards = self.loop.backwards_of(len(self._steps))
        shared = backwards > 1.5 and any(abs(factor * backwards - 1) < SHARE_SLACK for factor in seen.factors)
        facts: dict[str, Any] = {
            "loss_functions": list(seen.loss_forms.values()),
            "probabilities_as_logits": seen.probabilities_as_logits,
            "logits_as_log_probabilities": seen.logits_as_log_probabilities,
            "loss_arguments_swapped": seen.swapped,
            "broadcast": seen.broadcast,
            "softmax_dimension": seen.softmax_dimension,
            "singular_calls": list(seen.singular.values()),
            **self.calls.made.facts(self._onset, self.batches.has_own_targets),
            "loss_terms": self.calls.terms.found or None,
            "loss_reductions": self.calls.terms.unequal or None,
            "policy_entropy": self.entropy.found,
            "detached_calls": seen.detached,
            "fully_masked_rows": seen.fully_masked,
            "attention_logit_largest": seen.attention_largest or None,
            "attention_unscaled": self.calls.products.unscaled,
            "half_peak": seen.half_peak if seen.half_used else None,
            "half_overflow": seen.half_overflow if seen.half_used else None,
            "batch_norm_values": seen.batch_norm_values,
            "retain_graph": seen.retain_graph,
            "dropout_functional": seen.functional_dropout,
            "ctc_infeasible_rows": seen.ctc_infeasible or None,
            "loss_sum": any(form["reduction"] == "sum" for form in seen.loss_forms.values()),
            "loss_divided": bool(seen.divisors) or shared,
            "loss_divisor": max(seen.divisors, default=backwards if shared else None),
            "backward_lines": len(seen.backward_lines) or None,
            "empty_masks": self._empty_masks,
            "dropout": max(seen.dropout.values(), default=0.0),
            "label_smoothing": seen.smoothing,
        }
        if seen.tables:
            largest, rows, outside = max(seen.tables.values(), key=lambda table: table[0] / max(1, table[1]))
            facts |= {"token_largest": largest, "token_rows": rows}
            self.labels.outside += outside
        facts["tokens_out_of_range"] = self.labels.outside
        return facts

    def _of_loop(self) -> dict[str, Any]:
        loop = self.loop
        updates = max(1, self._gates)
        facts: dict[str, Any] = {
            **loop.of_loader(),
            "scaler_skips": loop.skips if loop.scaler_used else None,
            "clip_coefficient": sorted(loop.clip_coefficients)[len(loop.clip_coefficients) // 2]
            if loop.clip_coefficients
            else None,
            "zero_grad_calls": loop.zero_grads / updates,
            "gradients_carried_over": loop.carried_over,
            "gradients_rescaled": loop.rescaled,
            "backwards_per_step": loop.backwards_of(len(self._steps)),
            "clipped": loop.clips > 0,
            "clip_value": loop.clip_value,
            "clip_before_unscale": loop.clip_before_unscale,
            "clip_before_backward": loop.clip_before_backward,
            "optimizer_steps_without_backward": loop.empty_updates,
            "scaler": loop.scaler_used,
            "scaler_scale": loop.scaler_scale,
            "backward_in_autocast": loop.backward_in_autocast,
            "optimizer_in_autocast": loop.optimizer_in_autocast,
            "state_loaded": loop.loaded_model,
            "state_loaded_optimizer": loop.loaded_optimizer,
            "scheduler_steps_per_step": loop.scheduler_steps / updates / len(loop.schedulers)
            if loop.schedulers
            else None,
            "scheduler": type(loop.schedulers[0]).__name__ if loop.schedulers else None,
            "scheduler_planned": loop.planned(),
            "scheduler_before_optimizer": loop.scheduler_first,
            "eval_left_on": loop.evals > 0 and bool(self.modules.in_eval) and self.modules.root_in_eval,
        }
        if self._micro_batches:
            enabled = self._micro_batches[-1].autocast.enabled
            facts["autocast_dtype"] = str(enabled[0][1]).removeprefix("torch.") if enabled else None
        return facts

    def _of_stored_rows(self) -> dict[str, Any]:
        """Reads rows again, which moves random numbers and may change the data: last of all."""
        return {
            "rows_written": self.calls.writes.found(),
            "rows_change_when_read": changed_by_reading(self.loop.loaders),
            "rows_drawn_anew": drawn_anew(self.loop.loaders),
        }

    def _of_steps(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "surveyed_first_step": self._steps[0] if self._steps else None,
            "surveyed_last_step": self._steps[-1] if self._steps else None,
            "surveyed_steps": len(self._steps),
            "steps_planned": self._planned,
            "survey_replayed": isinstance(self._inner, ReplayedSteps),
            "ranks": int(os.environ.get("WORLD_SIZE", "1")),
            "settings_changed": self.calls.settings.changed(self._onset),
            "initial_loss": self._losses[0][1] if self._losses and self._losses[0][0] == 1 else None,
        }
        before = sorted(loss for step, loss in self._losses if self._onset - 16 <= step < self._onset)
        now = [loss for step, loss in self._losses if step == self._onset]
        if now and before and before[len(before) // 2] > 0:
            facts["loss_excess"] = now[0] / before[len(before) // 2]
        counts = self.state.facts.get("state_step")
        if counts and self._steps:
            facts["state_step_lag"] = self._steps[-1] - 1 - counts[1]
        rates = self.state.learning_rates
        firsts = [rate for step, rate in zip(self._steps, rates, strict=False) if step <= FIRST_STEPS]
        if len(firsts) > 2:
            facts["warmup_seen"] = all(a <= b for a, b in itertools.pairwise(firsts)) and firsts[-1] > firsts[0]
        if isinstance(self._outcome, str):
            self._notes.append(self._outcome)
        elif self._outcome is not None:
            first = self._outcome.first_difference
            facts["replay_exact"] = self._outcome.exact
            facts["first_difference"] = first and {"step": first.step, "phase": first.phase, "tensor": first.tensor}
        return facts

    def _of_reruns(self) -> dict[str, Any]:
        facts = reruns(self._micro_batches, self.calls, self.labels.last)
        if self._stream is None:
            return facts
        lost = self.state.without_gradient(self._stream)
        behind, moves = cut_off(self._micro_batches[-1:], lost, self.calls.seen.behind_cuts)
        facts["parameters_cut_off"] = sorted(self.state.names[key] for key in behind)[:LISTED_MAX]
        if behind and self._micro_batches:
            facts["cut_off_moves_output"] = moves
        return facts
