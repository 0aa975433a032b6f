"""Chooses the steps of the looks, and writes their rows as readings of the table ``script``.

A look happens in some of the first steps of a stream (``LOOK_STEPS``), as many steps after the optimizer's parameters
change, and right after the loss stood out. A row is ``MEASURE:PLACE``; the table has one column, ``value``. Rows that a
look cannot measure are missing or NaN. All other steps cost a few comparisons.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.guarded_events import MISSING
from steadytrain.capture.looks.apart import Apart
from steadytrain.capture.looks.call_settings import EVERY_STEPS
from steadytrain.capture.looks.counted_steps import RATE_UPDATES, counted_rows, resumed_rows
from steadytrain.capture.looks.cut_modules import CutModules
from steadytrain.capture.looks.evaluation_mode import ModeEffects
from steadytrain.capture.looks.evaluations import Evaluations
from steadytrain.capture.looks.followed import Followed, Seen
from steadytrain.capture.looks.graph_edges import edge_rows
from steadytrain.capture.looks.graph_rows import graph_rows
from steadytrain.capture.looks.held_parameters import is_sharded
from steadytrain.capture.looks.idle_schedules import IdleSchedules, Passes
from steadytrain.capture.looks.label_counts import LABEL_STEPS, batch_classes
from steadytrain.capture.looks.label_places import label_rows
from steadytrain.capture.looks.loaded_norms import LoadedNorms
from steadytrain.capture.looks.loss_graph import read_graph
from steadytrain.capture.looks.loss_levels import TrainingLevels
from steadytrain.capture.looks.loss_lines import loss_place
from steadytrain.capture.looks.moving_targets import MovingTargets
from steadytrain.capture.looks.pass_orders import PassOrders
from steadytrain.capture.looks.policy_code import policy_rows
from steadytrain.capture.looks.recomputed_draws import RecomputedDraws
from steadytrain.capture.looks.recurrent_axes import RecurrentAxes
from steadytrain.capture.looks.repeated_inputs import Fetched, inputs_of
from steadytrain.capture.looks.schedule_counts import ScheduleCounts, schedulers_at_start
from steadytrain.capture.looks.script_reading import SourceReading
from steadytrain.capture.looks.stopped_updates import StoppedUpdates
from steadytrain.capture.looks.successive_optimizers import SuccessiveOptimizers
from steadytrain.capture.looks.tied_tables import TiedTables
from steadytrain.capture.looks.trained_elements import adapter_rows, descent_rows, frozen_tables, trained_rows
from steadytrain.capture.snapshots.loaded_states import LoadedStates
from steadytrain.capture.step.gate import Measurement
from steadytrain.capture.step.input_recorder import MicroBatch, RandomState, ids_of
from steadytrain.capture.step.live_run import LiveRun
from steadytrain.capture.step.observers import StepObserver
from steadytrain.capture.step.optimizer_streams import StepInProgress, Stream
from steadytrain.core.incident import Samples

LOOK_STEPS = frozenset({1, 2, 3, 4, 8, 16, 32})
TRAINING_MIN = 8
"""Steps of an optimizer after which the first step of another one is taken for the begin of another training: two that
take turns both step before."""

CYCLED_STEPS = 4
"""Steps in a row that repeat the inputs of the first ones."""

STATISTICS_STEPS = (16, 32)
"""Steps in which the running statistics of batch norms are read: after so many batches they have moved."""

GRAPHS_MAX = 4
"""Loss graphs read per step; further micro-batches have the same graph."""


class ScriptLook(StepObserver):
    """Follows every stream of ``run``, in addition to the observer that records its steps.

    Args:
        rows_of: returns the number of rows of a data set, given its number; 0 if it has no length.
        loads: what the script has loaded.
        orders: the order of the samples in each pass over a loader.
    """

    def __init__(self, run: LiveRun, rows_of: Callable[[int], int], loads: LoadedStates, orders: PassOrders) -> None:
        self._run, self._rows_of, self._loads, self._orders = run, rows_of, loads, orders
        loads.own.told = self._own_state_loaded
        self._followed: dict[int, Followed] = {}
        self._levels = TrainingLevels(run.settings, loads.resumed)
        self._modes, self._successive = ModeEffects(), SuccessiveOptimizers()
        self._seen, self._data = Seen(), Fetched()
        self._passes = Passes()
        self._begun = self._passes.bounds
        self._targets = self._new_targets()
        self._evaluations, self._norms, self._source = Evaluations(self._orders), LoadedNorms(), SourceReading()
        self._stopped, self._redraws = StoppedUpdates(), RecomputedDraws()
        self._works, self._apart = True, Apart(run.guard.report)

    # -- the step --------------------------------------------------------------------------------------------------

    def drawn(self, samples: Samples) -> None:
        self._data.drawn = len(samples.indices)

    def fetched(self, dataset: int, batch: Any) -> Any:
        self._guarded(self._fetched, dataset, batch)
        return MISSING

    def call_begins(self, module: nn.Module, call: MicroBatch, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        self._guarded(self._called, module, call, args, kwargs)
        self._guarded(self._norms.called, module)
        return None

    def aside_begins(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._guarded(self._targets.called_aside, module, args, kwargs)
        self._guarded(self._evaluations.called_aside, module, args, kwargs)

    def gradients_zeroed(self) -> None:
        self._guarded(self._zeroed)

    def forward_ended(self, call: MicroBatch | None, random: RandomState) -> None:
        if call is not None:
            self._guarded(self._returned, call, random)

    def backward_begins(self) -> None:
        self._guarded(self._backward_begins)

    def backward_ends(self) -> None:
        self._guarded(self._backward_ends)

    def loss_seen(self, root: Tensor) -> None:
        self._guarded(self._loss_seen, root)

    def gate(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        self._guarded(self._gate, stream, seen, measured)

    def step_ended(self, stream: Stream, folder: Path | None) -> None:
        self._guarded(self._step_ended, stream, folder)

    def rest_begins(self, stream: Stream) -> None:
        self._guarded(self._rest_begins, stream)

    def passed_over(self, dataset: int, batch: Any, *, keep: bool) -> None:
        self._guarded(self._passes.fetched, dataset, batch, self._rows_of(dataset))

    def rest_ends(self, stream: Stream, *, within: bool) -> None:
        self._guarded(self._rest_ends, stream)

    def script_ended(self) -> None:
        for number, stream in enumerate(self._run.streams):  # the last call of one that failed may be that of a step
            self._guarded(self._last_rows, stream, number == 0 and self._run.failure is None)

    def stream_done(self, stream: Stream) -> None:
        self._guarded(self._last_rows, stream)
        ended = self._followed.pop(id(stream), Followed())
        ended.release()
        self._levels.ended(ended.levels)
        self._guarded(self._successive.done, stream)

    def optimizer_replaced(self, stream: Stream, old: torch.optim.Optimizer | None) -> None:
        self._one(stream).optimizer_replaced()
        self._targets.training_begins()
        self._guarded(self._successive.replaced, stream, old)

    def close(self, *, finished: bool, noted: bool) -> None:
        for one in self._followed.values():
            one.release()
        self._targets.remove()

    def forget(self) -> None:
        self.close(finished=False, noted=False)
        self._works = False

    def _guarded(self, look: Callable[..., None], *arguments: Any) -> None:
        """Call ``look``. An error is reported, and ends the looks of this kind."""
        if self._works:
            self._apart.call(look, *arguments)

    def _rest_begins(self, stream: Stream) -> None:
        self._orders.break_off()
        self._stopped.passed_over()
        self._one(stream).inputs.break_off()
        self._one(stream).rests_from = stream.step

    def _rest_ends(self, stream: Stream) -> None:
        one = self._one(stream)
        self._seen, self._begun = Seen(), self._passes.bounds
        self._data.batches = self._data.drawn = 0
        self._stopped.passed_over()
        if one.counts is not None:
            one.counts.passed_over(stream.step - one.rests_from)

    def _fetched(self, dataset: int, batch: Any) -> None:
        rows = self._rows_of(dataset)
        self._data.batches += 1
        self._data.dataset = dataset if torch.is_grad_enabled() else self._data.dataset
        self._data.rows_in_all = max(self._data.rows_in_all, rows)
        self._passes.fetched(dataset, batch, rows, self._data.drawn)

    def _called(self, module: nn.Module, call: MicroBatch, args: Any, kwargs: Any) -> None:
        first, self._seen.call = self._seen.call is None, call
        self._seen.training, self._seen.can_tell = module.training, self._modes.by_modules(module)
        self._seen.draws_no_more, self._seen.bounds = False, not module.training and self._modes.by_spectra(module)
        if first:
            self._seen.given = inputs_of(args, kwargs)
        self._targets.called(module, args, kwargs)
        self._evaluations.called(module, args, kwargs)

    def _returned(self, call: MicroBatch, random: RandomState) -> None:
        if call is self._seen.call:
            self._seen.draws_no_more = self._modes.by_draws(call, random, training=self._seen.training)

    def _backward_begins(self) -> None:
        self._redraws.begins()
        self._evaluations.backward_begins()
        rows = dict(self._stopped.backward_begins(self._run.streams))
        for stream in self._run.streams[:1] if rows else ():
            self._tell(stream, rows)

    def _backward_ends(self) -> None:
        self._redraws.ended()
        for stream in self._run.streams:
            self._one(stream).shortened.backward_ended(stream)

    def _last_rows(self, stream: Stream, ends: bool = False) -> None:
        rows = self._apart(self._one(stream).at_the_end, stream)
        rows |= self._apart(self._evaluations.at_the_end) if ends else {}
        if rows:
            self._tell(stream, rows)

    def _own_state_loaded(self, place: str) -> None:
        """Told at once: a script restores its best weights after its last update."""
        trained = [stream for stream in self._run.streams if stream.own_steps]
        for stream in trained[-1:] if self._works else ():
            self._tell(stream, {f"own-state-loaded:{place}": 1.0})

    def _zeroed(self) -> None:
        self._stopped.zeroed()
        for stream in self._run.streams:
            looked = self._seen.backward and stream.own_steps + 1 in LOOK_STEPS
            self._one(stream).zeroed(stream, before_step=looked)

    def _loss_seen(self, root: Tensor) -> None:
        self._seen.backward = True
        for one in self._followed.values():
            one.backward_begins()
        for stream in self._run.streams:
            self._one(stream).weights.read(root, stream.own_steps + 1)
        due = [stream for stream in self._run.streams if self._is_due(stream)]
        for stream in due if self._run.seen.losses else ():
            summed = self._one(stream).summed
            summed.backward_begins(stream, self._run.seen.losses[-1], root, scaled=bool(self._run.scaling.scalers))
        labels = any(stream.own_steps + 1 in LABEL_STEPS for stream in self._run.streams)
        if len(self._seen.graphs) >= GRAPHS_MAX or not (due or labels or not self._run.streams):
            return
        graph = read_graph(root)
        self._seen.graphs.append((loss_place(), graph, self._seen.call))
        self._targets.loss_read(follows_itself=graph.follows_itself, compared=graph.compared)
        for stream in due:
            filled = [one for one in stream.parameters if id(one) in graph.parameters]
            if filled and not is_sharded(stream.parameters):
                self._one(stream).backward_fills(filled)

    def _gate(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        one, apart = self._one(stream), self._apart
        if stream.own_steps == 0 and any(other.own_steps >= TRAINING_MIN for other in self._run.streams):
            self._targets.remove()  # another training of the script: its copies and targets are others
            self._targets = self._new_targets()
        moving = None if is_sharded(stream.parameters) else self._targets.gate(stream, seen)
        if moving is not None:
            self._run.recorder.set_fact("moving_targets", moving)
        joined = one.joined(stream)
        changed = one.missing.changed(stream) or one.held.changed(stream, (call.module for call in seen.micro_batches))
        one.since_change = 0 if changed else one.since_change
        rows = apart(one.of_mode, self._seen, seen, stream) | apart(self._targets.rows, stream)
        rows |= {f"joined-parameters:{stream.name}": float(joined)} if joined else {}
        scalars, scaled = measured.record.scalars, bool(self._run.scaling.scalers)
        norm = scalars.get("parameter_norm")
        rows |= apart(one.missing.rows, stream, after_backward=self._seen.backward, norm=norm)
        if one.schedules is None:
            one.begun, one.schedulers = self._begun, schedulers_at_start(stream)
            one.schedules, one.counts = IdleSchedules(stream, one.schedulers), ScheduleCounts(one.schedulers)
            rows |= apart(counted_rows, stream, one.schedulers, len(measured.losses))
        rows |= apart(one.of_moments, stream, self._loads.resumed)
        rows |= apart(one.decays.rows, stream) if not is_sharded(stream.parameters) else {}
        rows |= apart(self._levels.rows, one.levels, stream, measured, self._followed.values())
        rows |= apart(self._successive.rows, stream, self._data.dataset) if stream.own_steps == stream.renewed else {}
        if stream.own_steps < RATE_UPDATES:
            rows |= apart(resumed_rows, stream, self._loads.resumed, one.schedulers)
        least, most = self._passes.since(one.begun)
        rows |= apart(one.schedules.rows, stream, least)
        rows |= apart(one.counts.rows, stream, least, most) if one.counts is not None else {}
        rows |= apart(self._loads.lost.rows) | apart(self._loads.replaced.rows, stream) | apart(self._loads.scaled.rows)
        rows |= apart(self._norms.rows, stream) if not is_sharded(stream.parameters) else {}
        rows |= apart(self._evaluations.rows) | apart(self._orders.rows, stream.name) | apart(self._redraws.rows)
        if one.cut is None:
            rows |= self._once(one, stream) | apart(self._source.rows, rows)
        else:
            rows |= apart(one.cut.rows, stream)
        if one.inputs.compares(stream.own_steps + 1, self._data.batches):
            rows |= self._of_inputs(one, stream, seen)
        rows |= apart(one.of_calls, stream, seen.micro_batches, scalars, scaled=scaled)
        rows |= apart(one.of_statistics, stream) if stream.own_steps + 1 in STATISTICS_STEPS else {}
        rows |= apart(one.weights.rows) | apart(one.of_schedules, stream, self._run.streams, most)
        if stream.own_steps + 1 in LABEL_STEPS:
            rows |= apart(batch_classes, self._seen.graphs)
        rows |= apart(one.shared.rows, self._seen.graphs) if self._seen.graphs else {}
        if self._seen.graphs and self._is_due(stream):
            rows |= self._of_graphs(one, stream)
            rows |= {"carried-over:gradients": float(one.left_over), **apart(one.foreign.rows)}
            rows |= apart(one.summed.rows, stream, seen, scaled=scaled)
            if one.tied is None:
                one.tied = TiedTables(stream.roots())
            else:
                rows |= apart(one.tied.rows)
        if self._run.scaling.clipped_before_unscaling:
            rows |= {"clipped-scaled:gradients": float(self._run.scaling.clipped_before_unscaling)}
        if stream.own_steps + 1 in LOOK_STEPS:
            rows |= apart(one.of_gradients, stream, seen, scalars.get("gradient_norm"))
        one.averages.updated(stream, self._run.is_script, self._run.guard.report)
        one.since_change += 1
        one.rises.stepped(scalars.get("loss"))
        one.rows = rows

    def _step_ended(self, stream: Stream, folder: Path | None) -> None:
        one = self._one(stream)
        rows, one.rows = one.rows, {}
        one.updated, one.left_over = True, False
        self._successive.updated(stream, self._data.dataset)
        one.foreign.updated()
        for other in self._followed.values():
            if other is not one:
                other.foreign.other_updated()
        rows |= dict(self._stopped.updated())
        if stream.own_steps in LOOK_STEPS and not is_sharded(stream.parameters):
            one.late.updated(stream.parameters)
        self._seen, self._begun = Seen(), self._passes.bounds
        self._data.batches = self._data.drawn = 0
        self._orders.stepped(stream.name)
        if rows and folder is not None:
            self._write(stream, rows)

    def _tell(self, stream: Stream, rows: dict[str, float]) -> None:
        """Write rows outside of a step, and report at once what they show."""
        self._write(stream, rows)
        self._run.recorder.tell_symptoms(self._run.recorder.detect(stream))

    def _write(self, stream: Stream, rows: dict[str, float]) -> None:
        self._run.recorder.read(stream, stream.step, self._run.clock(), self._one(stream).reading(rows))

    def _once(self, one: Followed, stream: Stream) -> dict[str, float]:
        """What does not change in a training: which parameters it trains, and what its source says."""
        apart = self._apart
        one.cut = CutModules(stream, self._run.guard.report)
        one.recurrent = RecurrentAxes(stream, self._run.guard.report)
        rows = apart(trained_rows, stream, self._run.streams) | apart(adapter_rows, stream)
        rows |= apart(descent_rows, stream) | apart(frozen_tables, stream)
        return rows | apart(policy_rows)

    # -- what is measured ------------------------------------------------------------------------------------------

    def _of_graphs(self, one: Followed, stream: Stream) -> dict[str, float]:
        apart = self._apart
        filled = {key: each for _, graph, _ in self._seen.graphs for key, each in graph.parameters.items()}
        rows = apart(one.held.look, stream, self._run.streams, filled)
        drawn = self._data.drawn if self._data.batches == 1 else 0
        assert one.recurrent is not None
        read, layers = one.recurrent.read(stream), one.recurrent.found
        for line, graph, call in self._seen.graphs:
            rows |= {f"{misuse}:{line}": count for misuse, count in graph.misuses.items()}
            shown = apart(graph_rows, graph, call, read, drawn=drawn, has_recurrent=layers)
            shown |= apart(one.targets.rows, graph.squared, call) | apart(one.ratios.rows, graph.surrogates, call)
            shown |= apart(one.binary.rows, graph.binary)
            rows |= {f"{measure}:{line}": value for measure, value in shown.items()} | apart(edge_rows, call)
            for likelihood in graph.likelihoods[:1] if call is not None and len(graph.likelihoods) == 1 else ():
                assert call is not None
                given = [each.to(likelihood.targets.device) for each in ids_of(call) if each.dtype.itemsize > 1]
                found = apart(label_rows, likelihood, given, call.samples, graph, has_recurrent=layers)
                found |= apart(one.labels.rows, likelihood)
                rows |= {f"{measure}:{line}": value for measure, value in found.items()}
        return rows

    def _of_inputs(self, one: Followed, stream: Stream, seen: StepInProgress) -> dict[str, float]:
        step = stream.own_steps + 1
        found = dict(one.inputs.step(step, self._seen.given, seen.micro_batches, self._data))
        if step not in LOOK_STEPS and step % EVERY_STEPS:
            found = {}
        shuffler = self._orders.shuffler
        if shuffler and one.inputs.cycled.steps >= CYCLED_STEPS:
            found[f"cycled-batches:{shuffler}"] = float(one.inputs.cycled.steps)
        return found

    # -- where it stands -------------------------------------------------------------------------------------------

    def _new_targets(self) -> MovingTargets:
        return MovingTargets(self._run.is_script, lambda: self._run.modules.compile_used, self._run.guard.report)

    def _is_due(self, stream: Stream) -> bool:
        one = self._one(stream)
        return stream.own_steps + 1 in LOOK_STEPS or one.since_change + 1 in LOOK_STEPS or one.rises.is_due

    def _one(self, stream: Stream) -> Followed:
        one = self._followed.get(id(stream))
        if one is None:
            one = self._followed[id(stream)] = Followed()
        return one
