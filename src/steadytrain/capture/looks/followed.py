"""What the looks at a script keep of one stream, and of one step."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from steadytrain.capture.looks.cut_modules import CutModules
from steadytrain.capture.looks.foreign_gradients import ForeignGradients
from steadytrain.capture.looks.held_parameters import HeldParameters
from steadytrain.capture.looks.idle_schedules import IdleSchedules
from steadytrain.capture.looks.label_counts import LabelCounts
from steadytrain.capture.looks.late_clips import LateClips
from steadytrain.capture.looks.loss_graph import LossGraph
from steadytrain.capture.looks.loss_levels import LossLevels
from steadytrain.capture.looks.misplaced_moments import MisplacedMoments
from steadytrain.capture.looks.missing_gradients import MissingGradients
from steadytrain.capture.looks.plateau_modes import PlateauModes
from steadytrain.capture.looks.recurrent_axes import RecurrentAxes
from steadytrain.capture.looks.regression_targets import RegressionTargets
from steadytrain.capture.looks.repeated_inputs import Inputs, RepeatedInputs
from steadytrain.capture.looks.running_statistics import slow_norms, statistics_rows
from steadytrain.capture.looks.schedule_counts import ScheduleCounts
from steadytrain.capture.looks.slow_averages import SlowAverages
from steadytrain.capture.looks.summed_backwards import SummedBackwards
from steadytrain.capture.looks.term_weights import TermWeights
from steadytrain.capture.looks.tied_tables import TiedTables
from steadytrain.capture.looks.unit_ratios import UnitRatios
from steadytrain.capture.snapshots.resumed_states import ResumedStates
from steadytrain.capture.step.input_recorder import MicroBatch
from steadytrain.capture.step.optimizer_streams import Stream

LOADS_MAX = 4
"""Loads of an optimizer's state after which its moments are looked at."""


@dataclass
class Followed:
    """The state of one stream."""

    late: LateClips = field(default_factory=LateClips)
    foreign: ForeignGradients = field(default_factory=ForeignGradients)
    inputs: RepeatedInputs = field(default_factory=RepeatedInputs)
    held: HeldParameters = field(default_factory=HeldParameters)
    labels: LabelCounts = field(default_factory=LabelCounts)
    targets: RegressionTargets = field(default_factory=RegressionTargets)
    ratios: UnitRatios = field(default_factory=UnitRatios)
    plateaus: PlateauModes = field(default_factory=PlateauModes)
    weights: TermWeights = field(default_factory=TermWeights)
    averages: SlowAverages = field(default_factory=SlowAverages)
    levels: LossLevels = field(default_factory=LossLevels)
    cut: CutModules | None = None
    recurrent: RecurrentAxes | None = None
    missing: MissingGradients = field(default_factory=MissingGradients)
    summed: SummedBackwards = field(default_factory=SummedBackwards)
    tied: TiedTables | None = None
    moments: MisplacedMoments | None = None
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
    rests_from: int = 0
    rows: dict[str, float] = field(default_factory=dict)
    known: list[str] = field(default_factory=list)

    def of_moments(self, stream: Stream, resumed: ResumedStates) -> Iterator[tuple[str, float]]:
        """The rows of the moments that the optimizers of ``stream`` were given, at the start or since the last step,
        and those of what their checkpoint leaves out."""
        given = sum(resumed.times_given(one) for one in stream.optimizers)
        if given != self.given and self.loads < LOADS_MAX:
            self.given, self.loads = given, self.loads + 1
            stream.lost_moments = None
            self.moments = MisplacedMoments(stream)
        if self.moments is not None:
            yield from self.moments.rows(stream)
        yield from resumed.left_out.rows(stream, given=given > 0)

    def of_statistics(self, stream: Stream) -> Iterator[tuple[str, float]]:
        """The rows of running statistics at this step; those that move slowly are kept for the end."""
        roots = list(stream.roots())
        yield from statistics_rows(roots)
        self.slow_norms, self.looked_step = slow_norms(roots), stream.own_steps + 1

    def at_the_end(self, stream: Stream) -> Iterator[tuple[str, float]]:
        """The rows that are reported when the script ends. ``first-statistics:NAME`` is the share of its first running
        statistics that a batch norm still has."""
        yield from self.averages.rows(stream)
        for name, (momentum, batches) in self.slow_norms.items():
            yield f"first-statistics:{name}", (1.0 - momentum) ** (batches / self.looked_step * stream.own_steps)

    def release(self) -> None:
        """Take all hooks off the modules of the script."""
        for hooked in (self.cut, self.recurrent, self.averages):
            if hooked is not None:
                hooked.release()


@dataclass
class Seen:
    """What the script did since the last step of any stream."""

    graphs: list[tuple[str, LossGraph, MicroBatch | None]] = field(default_factory=list)
    call: MicroBatch | None = None
    given: Inputs = field(default_factory=list)
    training: bool = True
    can_tell: bool = False
    draws_no_more: bool = False
    backward: bool = False
