"""What the looks at a script keep of one stream, and of one step."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from steadytrain.capture.looks.binary_labels import BinaryLabels
from steadytrain.capture.looks.call_settings import EVERY_STEPS
from steadytrain.capture.looks.cleared_gradients import ClearedGradients
from steadytrain.capture.looks.coarse_inputs import call_rows
from steadytrain.capture.looks.cut_modules import CutModules
from steadytrain.capture.looks.decay_shares import DecayShares
from steadytrain.capture.looks.evaluation_mode import switched_off
from steadytrain.capture.looks.foreign_gradients import ForeignGradients
from steadytrain.capture.looks.hand_clips import HandClips
from steadytrain.capture.looks.held_parameters import HeldParameters
from steadytrain.capture.looks.idle_schedules import IdleSchedules
from steadytrain.capture.looks.label_counts import LabelCounts
from steadytrain.capture.looks.late_clips import LateClips
from steadytrain.capture.looks.loss_graph import LossGraph
from steadytrain.capture.looks.loss_levels import LossLevels
from steadytrain.capture.looks.loss_rises import LossRises
from steadytrain.capture.looks.misplaced_moments import MisplacedMoments
from steadytrain.capture.looks.missing_gradients import MissingGradients
from steadytrain.capture.looks.nan_buffers import nan_buffer_rows
from steadytrain.capture.looks.plateau_modes import PlateauModes
from steadytrain.capture.looks.plateau_steps import PlateauSteps
from steadytrain.capture.looks.recurrent_axes import RecurrentAxes
from steadytrain.capture.looks.regression_targets import RegressionTargets
from steadytrain.capture.looks.repeated_inputs import Inputs, RepeatedInputs
from steadytrain.capture.looks.running_statistics import slow_norms, statistics_rows
from steadytrain.capture.looks.schedule_counts import ScheduleCounts
from steadytrain.capture.looks.script_reading import sources_hold
from steadytrain.capture.looks.shared_inputs import SharedInputs
from steadytrain.capture.looks.slow_averages import SlowAverages
from steadytrain.capture.looks.stale_casts import StaleCasts
from steadytrain.capture.looks.stray_schedules import StraySchedules
from steadytrain.capture.looks.summed_backwards import SummedBackwards
from steadytrain.capture.looks.term_weights import TermWeights
from steadytrain.capture.looks.tied_tables import TiedTables
from steadytrain.capture.looks.unit_ratios import UnitRatios
from steadytrain.capture.looks.unmoved_weights import HalfWeights
from steadytrain.capture.snapshots.resumed_states import ResumedStates
from steadytrain.capture.step.input_recorder import MicroBatch
from steadytrain.capture.step.optimizer_streams import StepInProgress, Stream
from steadytrain.core.model import Reading

ROWS_MAX = 128
FROM_START_STEPS = 32
TURNS_ON = r"\.train\(\s*(?:\)|True|mode)"
"""Steps in evaluation mode from the first one on after which that is reported; of dropout only where no line of the
script turns training mode on."""

EVAL_TOLD = (4, 16, 64)
"""Numbers of steps in a row in evaluation mode at which a look reports them."""

LOADS_MAX = 4
"""Loads of an optimizer's state after which its moments are looked at."""


@dataclass
class Followed:
    """The state of one stream."""

    late: LateClips = field(default_factory=LateClips)
    cleared: ClearedGradients = field(default_factory=ClearedGradients)
    foreign: ForeignGradients = field(default_factory=ForeignGradients)
    inputs: RepeatedInputs = field(default_factory=RepeatedInputs)
    held: HeldParameters = field(default_factory=HeldParameters)
    labels: LabelCounts = field(default_factory=LabelCounts)
    targets: RegressionTargets = field(default_factory=RegressionTargets)
    binary: BinaryLabels = field(default_factory=BinaryLabels)
    ratios: UnitRatios = field(default_factory=UnitRatios)
    plateaus: PlateauModes = field(default_factory=PlateauModes)
    plateau_steps: PlateauSteps = field(default_factory=PlateauSteps)
    stray: StraySchedules = field(default_factory=StraySchedules)
    weights: TermWeights = field(default_factory=TermWeights)
    averages: SlowAverages = field(default_factory=SlowAverages)
    levels: LossLevels = field(default_factory=LossLevels)
    rises: LossRises = field(default_factory=LossRises)
    half: HalfWeights = field(default_factory=HalfWeights)
    casts: StaleCasts = field(default_factory=StaleCasts)
    shortened: HandClips = field(default_factory=HandClips)
    shared: SharedInputs = field(default_factory=SharedInputs)
    cut: CutModules | None = None
    recurrent: RecurrentAxes | None = None
    missing: MissingGradients = field(default_factory=MissingGradients)
    summed: SummedBackwards = field(default_factory=SummedBackwards)
    tied: TiedTables | None = None
    moments: MisplacedMoments | None = None
    decays: DecayShares = field(default_factory=DecayShares)
    slow_norms: dict[str, tuple[float, float]] = field(default_factory=dict)
    looked_step: int = 1
    given: int = 0
    loads: int = 0
    schedules: IdleSchedules | None = None
    counts: ScheduleCounts | None = None
    begun: tuple[float, float] = (0.0, 0.0)
    schedulers: list[weakref.ref[Any]] = field(default_factory=list)
    signature: tuple[int, ...] = ()
    since_change: int = 0
    updated: bool = False
    left_over: bool = False
    trained: bool = False
    in_eval: int = 0
    never_trained: int = 0
    rests_from: int = 0
    rows: dict[str, float] = field(default_factory=dict)
    known: list[str] = field(default_factory=list)

    def zeroed(self, stream: Stream, *, before_step: bool) -> None:
        """The script is about to discard gradients, ``before_step`` those that a step of ``stream`` should apply."""
        self.late.zeroed()
        if before_step:
            self.cleared.zeroed(stream)

    def joined(self, stream: Stream) -> int:
        """How many parameters ``stream`` trains that it did not before."""
        if stream.signature is self.signature or stream.signature == self.signature:
            return 0
        new = len(set(stream.signature) - set(self.signature)) if self.signature else 0
        self.signature, self.since_change = stream.signature, 0
        return new

    def backward_begins(self) -> None:
        self.late.forget()
        self.cleared.forget()

    def optimizer_replaced(self) -> None:
        """Another optimizer goes on with the training: schedules and a loaded state belonged to the one before."""
        self.schedules = self.counts = self.moments = None
        self.plateaus, self.plateau_steps, self.stray = PlateauModes(), PlateauSteps(), StraySchedules()
        self.given = 0

    def backward_fills(self, filled: Sequence[Tensor]) -> None:
        """A backward is about to add to the gradients of these parameters."""
        there = any(each.grad is not None and bool(each.grad.any()) for each in filled)
        self.left_over, self.updated = (self.updated or self.left_over) and there, False
        self.foreign.backward_begins(filled)

    def of_gradients(self, stream: Stream, seen: StepInProgress, norm: float | None) -> Iterator[tuple[str, float]]:
        """The rows of gradients, of this ``norm``, that are about to be applied."""
        named = zip(stream.tensor_names, stream.parameters, strict=True) if seen.clipping.norms else ()
        yield from self.late.gate(seen.clipping, norm, tuple(named))
        yield from self.cleared.gate(stream)

    def of_calls(
        self, stream: Stream, calls: Sequence[MicroBatch], scalars: Mapping[str, float | None], *, scaled: bool
    ) -> Iterator[tuple[str, float]]:
        """The rows of each 16th step: weights in 16 bits, or cast to them, what is left of the gradients (``scaled``:
        with a loss scale in them), what the model is called with, and what its buffers hold."""
        if stream.own_steps % EVERY_STEPS:
            return
        yield from self.shortened.rows(scalars, scaled=scaled)
        yield from nan_buffer_rows(stream.roots())
        yield from self.half.rows(stream)
        yield from self.casts.rows(stream)
        yield from call_rows(calls, stream.own_steps)

    def of_moments(self, stream: Stream, resumed: ResumedStates) -> Iterator[tuple[str, float]]:
        """The rows of the moments that the optimizers of ``stream`` were given, at the start or since the last step,
        and those of what their checkpoint leaves out."""
        given = sum(resumed.times_given(one) for one in stream.optimizers)
        if given != self.given and self.loads < LOADS_MAX:
            self.given, self.loads = given, self.loads + 1
            if stream.own_steps:  # before the first update the guard may have read them, and begun with new ones
                stream.lost_moments = None
            self.moments = MisplacedMoments(stream)
        if self.moments is not None:
            yield from self.moments.rows(stream)
        yield from resumed.left_out.rows(stream, given=given > 0)

    def of_schedules(self, stream: Stream, streams: Sequence[Stream], passes: float) -> Iterator[tuple[str, float]]:
        """The rows of schedules that wait for a plateau, and of those that step another optimizer."""
        yield from self.plateaus.rows(stream)
        yield from self.plateau_steps.rows(stream, passes)
        yield from self.stray.rows(stream, streams)

    def of_statistics(self, stream: Stream) -> Iterator[tuple[str, float]]:
        """The rows of running statistics at this step; those that move slowly are kept for the end."""
        roots = list(stream.roots())
        yield from statistics_rows(roots)
        self.slow_norms, self.looked_step = slow_norms(roots), stream.own_steps + 1

    def of_mode(self, now: Seen, seen: StepInProgress, stream: Stream) -> Iterator[tuple[str, float]]:
        """The rows of the mode that the update's call ran in."""
        if not seen.micro_batches or _is_of_others(seen, stream):
            return
        if now.training:
            self.trained, self.in_eval = True, 0
            return
        if not self.trained:
            yield from self._of_the_start(seen, stream)
        elif now.can_tell or now.bounds or now.draws_no_more:
            self.in_eval += 1
            if self.in_eval in EVAL_TOLD:
                measure = "in-eval" if now.can_tell else "in-eval-spectral" if now.bounds else "in-eval-no-draws"
                yield f"{measure}:{type(seen.micro_batches[-1].module).__name__}", float(self.in_eval)

    def _of_the_start(self, seen: StepInProgress, stream: Stream) -> Iterator[tuple[str, float]]:
        """The rows of a model that was in evaluation mode in each of the first steps."""
        models = [call.module for call in seen.micro_batches]
        self.never_trained += 1 if not any(one.training for one in models) else 2 * FROM_START_STEPS
        if self.never_trained == FROM_START_STEPS:
            held = {id(one) for one in stream.parameters if one.requires_grad}
            for module in dict.fromkeys(models):
                found = dict(switched_off(module, held))
                if "new-norms-off" in found or (found and not sources_hold(TURNS_ON)):
                    yield from ((f"{measure}:{type(module).__name__}", value) for measure, value in found.items())

    def at_the_end(self, stream: Stream) -> Iterator[tuple[str, float]]:
        """The rows that are reported when the script ends. ``first-statistics:NAME`` is the share of its first running
        statistics that a batch norm still has."""
        yield from self.averages.rows(stream)
        for name, (momentum, batches) in self.slow_norms.items():
            yield f"first-statistics:{name}", (1.0 - momentum) ** (batches / self.looked_step * stream.own_steps)

    def reading(self, rows: dict[str, float]) -> Reading:
        """``rows`` as a reading of the table ``script``, which keeps its rows from reading to reading."""
        self.known += [name for name in rows if name not in self.known][: ROWS_MAX - len(self.known)]
        values = np.array([[rows.get(name, np.nan)] for name in self.known], np.float32)
        return Reading("script", tuple(self.known), ("value",), values)

    def release(self) -> None:
        """Take all hooks off the modules of the script."""
        for hooked in (self.cut, self.recurrent, self.averages):
            if hooked is not None:
                hooked.release()


def _is_of_others(seen: StepInProgress, stream: Stream) -> bool:
    """Whether the last call was of a model that ``stream`` does not train, after one that it does: a critic judges what
    the generator made."""
    roots = {id(one) for one in stream.model.roots} if stream.model is not None else set()
    calls = [id(call.module) in roots for call in seen.micro_batches]
    return not calls[-1] and any(calls)


@dataclass
class Seen:
    """What the script did since the last step of any stream."""

    graphs: list[tuple[str, LossGraph, MicroBatch | None]] = field(default_factory=list)
    call: MicroBatch | None = None
    given: Inputs = field(default_factory=list)
    training: bool = True
    can_tell: bool = False
    bounds: bool = False
    draws_no_more: bool = False
    backward: bool = False
