"""The state of one optimizer's steps over the whole run, and the state of one step in progress."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.clipping import Clipping
from steadytrain.capture.hooks.model_discovery import Model
from steadytrain.capture.step.dropped_optimizers import Remains
from steadytrain.capture.step.history import History
from steadytrain.capture.step.input_recorder import MicroBatch
from steadytrain.capture.step.loss import Lines, LossTerm, lines_of
from steadytrain.capture.step.parameter_writes import ParameterWrites
from steadytrain.capture.step.ranks import JointSteps
from steadytrain.capture.tensors.measurement_schedule import MeasurementSchedule
from steadytrain.core.incident import Finding
from steadytrain.storage.segments import SegmentWriter
from steadytrain.storage.tables import TableWriter

if TYPE_CHECKING:
    from steadytrain.capture.step.gate import Measurement


@dataclass
class StepInProgress:
    """The events of the step in progress; a new object replaces it when the step ends.

    ``clipping`` has the gradients' norms from before clipping. ``early`` is the finding about a non-finite loss from
    right before its backward. The first ``used`` of ``micro_batches`` were followed by a backward that left gradients;
    the first ``stale`` belong to gradients that the script has discarded since. ``left_out`` counts modules whose
    further calls are not recorded. ``evaluations`` counts the optimizer's calls of its closure. ``waited_s`` is the
    time in data loaders, in seconds. ``rested`` has for each stream its first unrecorded step and this one, if the run
    rested when this one began. ``are_derived``: no backward left gradients, and the losses are those whose derivatives
    by parameters the script has asked for, to update with them. The first ``first_pass`` losses, if not 0, are of the
    weights themselves, and later ones of weights that the optimizer has moved for a second pass (SAM).
    """

    began: float = field(default_factory=time.perf_counter)
    micro_batches: list[MicroBatch] = field(default_factory=list)
    used: int = 0
    stale: int = 0
    left_out: int = 0
    losses: list[LossTerm] = field(default_factory=list)
    first_pass: int = 0
    are_derived: bool = False
    fetched: list[tuple[int, Any]] = field(default_factory=list)
    clipping: Clipping = field(default_factory=Clipping)
    early: Finding | None = None
    evaluations: int = 0
    waited_s: float = 0.0
    rested: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def moved_weights(self) -> bool:
        """Whether the optimizer has already changed the weights within this step (LBFGS, between evaluations)."""
        return self.evaluations > 1

    @property
    def size_bytes(self) -> int:
        """Memory of the recorded inputs."""
        return sum(batch.size_bytes for batch in self.micro_batches)

    def amount(self, count: Callable[[MicroBatch], int | None]) -> float | None:
        """The largest sum of ``count`` over the calls of one module; None if some calls are not recorded.

        A loop may call several parts of its model in turn. Each of them then receives the same rows.
        """
        if self.left_out:
            return None
        sums: dict[int, int] = {}
        for batch in self.micro_batches:
            counted = count(batch)
            if counted is not None:
                sums[id(batch.module)] = sums.get(id(batch.module), 0) + counted
        return float(max(sums.values())) if sums else None

    def last_call(self) -> tuple[int, Lines] | None:
        """The id of the newest model call in this step, and the lines of the script that made it."""
        if not self.micro_batches:
            return None
        return id(self.micro_batches[-1]), lines_of(self.micro_batches[-1].frames)

    def backpropagated(self, term: LossTerm) -> None:
        """A backward that leaves gradients begins at this loss."""
        if self.are_derived:
            self.losses, self.are_derived = [], False
        self.losses.append(term)

    def derived(self, term: LossTerm) -> bool:
        """The script asks for the derivatives of this loss by parameters. Returns whether it counts as one of the step:
        beside losses that are backpropagated it does not."""
        self.are_derived = self.are_derived or not self.losses
        if self.are_derived:
            self.losses.append(term)
        return self.are_derived

    def backward_begins(self) -> None:
        """The calls so far belong to this backward. Drop those of discarded gradients if there are newer ones."""
        if len(self.micro_batches) > self.stale:
            del self.micro_batches[: self.stale]
            self.stale = 0
        self.used = len(self.micro_batches)

    def evaluated_again(self, calls: int, losses: int) -> None:
        """A closure begins once more: keep only the first ``calls`` model calls and ``losses`` of the step."""
        del self.micro_batches[calls:], self.losses[losses:]
        self.used, self.stale = min(self.used, calls), min(self.stale, calls)
        self.evaluations += 1

    def second_pass_begins(self) -> None:
        """The optimizer has moved the weights by these gradients, and begins with new ones at the place it moved to."""
        self.first_pass = self.first_pass or len(self.losses)

    def gradients_zeroed(self) -> None:
        """Forget the calls and losses behind discarded gradients."""
        del self.micro_batches[: self.used]
        # A model call without a backward may still get one, or the script may have abandoned it.
        self.used, self.stale = 0, len(self.micro_batches)
        self.losses, self.are_derived, self.early = [], False, None
        self.clipping = Clipping()


@dataclass
class Stream:
    """The steps of one optimizer, or of several that step together after the same backward.

    ``began`` is the last step of the earlier run that this run continues, 0 if there is none. ``updates_before`` of
    them were made in this run, by hand, before their pattern was known; ``passed_over`` were those of all streams until
    then. Optimizers are held by weak references; ``remains`` are those that the script has dropped. ``last_facts`` are
    the facts of model and optimizers from when it dropped them. ``lost_moments`` is what
    ``capture.looks.misplaced_moments`` saw of the state that they were given, before anything was done about it.
    ``renewed`` counts the steps of this process before the newest optimizer took the place of another one.
    """

    name: str
    history: History
    joined: list[Callable[[], torch.optim.Optimizer | None]] = field(default_factory=list)
    remains: list[Remains] = field(default_factory=list)
    parameters: list[Tensor] = field(default_factory=list)
    signature: tuple[int, ...] = ()
    model: Model | None = None
    tensor_names: tuple[str, ...] = ()
    writer: SegmentWriter | None = None
    tables: dict[str, TableWriter] = field(default_factory=dict)
    instruments: MeasurementSchedule | None = None
    step: int = 0
    began: int = 0
    updates_before: int = 0
    passed_over: int = 0
    pending: Measurement | None = None
    updating: bool = False
    joint: JointSteps | None = None
    last_facts: dict[str, Any] | None = None
    lost_moments: float | None = None
    writes: ParameterWrites = field(default_factory=ParameterWrites)
    renewed: int = 0

    def join(self, optimizer: torch.optim.Optimizer) -> None:
        """``optimizer`` steps in this stream from now on."""
        self.joined.append(weakref.ref(optimizer))

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """The optimizers that still exist, in the order in which they joined."""
        return [optimizer for held in self.joined if (optimizer := held()) is not None]

    def release(self) -> None:
        """Drop all references to model and optimizers: the script has dropped its optimizers, so no step follows."""
        if self.instruments is not None:
            self.instruments.release()
        self.joined, self.remains, self.parameters, self.signature = [], [], [], ()
        self.model, self.joint, self.pending, self.updating = None, None, None, False

    @property
    def together(self) -> bool:
        """Whether several ranks train this model together."""
        return self.joint is not None

    @property
    def device(self) -> torch.device:
        return self.parameters[0].device if self.parameters else torch.device("cpu")

    @property
    def own_steps(self) -> int:
        """The number of steps that this process made."""
        return self.step - self.began

    @property
    def begins_anew(self) -> bool:
        """Whether the next step is the first one of an optimizer that took the place of another one."""
        return 0 < self.renewed == self.own_steps

    def roots(self) -> Iterator[nn.Module]:
        """The root modules that hold a parameter of the optimizers; their state is the model's state."""
        wanted = set(map(id, self.parameters))
        for root in self.model.roots if self.model else ():
            if not wanted.isdisjoint(map(id, root.parameters())):
                yield root
