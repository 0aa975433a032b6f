"""What belongs to one optimizer over the whole run, and what belongs to one step while it forms."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.clipping import Clipping
from steadytrain.capture.hooks.model_discovery import Model
from steadytrain.capture.step.history import History
from steadytrain.capture.step.input_recorder import MicroBatch
from steadytrain.capture.step.loss import Lines, LossTerm, lines_of
from steadytrain.capture.step.ranks import JointSteps
from steadytrain.capture.tensors.measurement_schedule import MeasurementSchedule
from steadytrain.core.incident import Finding
from steadytrain.storage.segments import SegmentWriter
from steadytrain.storage.tables import TableWriter

if TYPE_CHECKING:
    from steadytrain.capture.step.gate import Measurement


@dataclass
class StepInProgress:
    """What was seen of the step that is forming; a new one begins when the step ends.

    ``clipping`` is what was read of the gradients before clipping. ``early`` is what a look
    at a loss that is not finite has found right before its backward. Of ``micro_batches`` the first ``used`` had a
    backward after them; the first ``stale`` belong to gradients that the script has thrown away since.
    ``left_out`` counts modules whose further calls are not among them. ``evaluations`` counts how often the optimizer
    has called its closure. ``waited_s`` is the time in data loaders.
    """

    began: float = field(default_factory=time.perf_counter)
    micro_batches: list[MicroBatch] = field(default_factory=list)
    used: int = 0
    stale: int = 0
    left_out: int = 0
    losses: list[LossTerm] = field(default_factory=list)
    fetched: list[tuple[int, Any]] = field(default_factory=list)
    clipping: Clipping = field(default_factory=Clipping)
    early: Finding | None = None
    evaluations: int = 0
    waited_s: float = 0.0

    @property
    def moved_weights(self) -> bool:
        """Whether the optimizer has moved the weights within this step already (LBFGS, between evaluations)."""
        return self.evaluations > 1

    @property
    def size_bytes(self) -> int:
        """Memory of the recorded inputs."""
        return sum(batch.size_bytes for batch in self.micro_batches)

    def amount(self, count: Callable[[MicroBatch], int | None]) -> float | None:
        """What ``count`` gives, summed over the calls of the module that got most of it; None where calls are left out.

        A loop may call the parts of its model one after the other: then each of them got the same rows.
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
        """The number of the newest call of the model in this step, and the lines of the script that made it."""
        if not self.micro_batches:
            return None
        return id(self.micro_batches[-1]), lines_of(self.micro_batches[-1].frames)

    def backward_begins(self) -> None:
        """The calls so far belong to this backward; those of gradients thrown away go when newer ones are here."""
        if len(self.micro_batches) > self.stale:
            del self.micro_batches[: self.stale]
            self.stale = 0
        self.used = len(self.micro_batches)

    def gradients_zeroed(self) -> None:
        """Forget what led to gradients that are thrown away."""
        del self.micro_batches[: self.used]
        # A call of the model that no backward followed may be the one before backward, or one that was given up.
        self.used, self.stale = 0, len(self.micro_batches)
        self.losses, self.early = [], None
        self.clipping = Clipping()


@dataclass
class Stream:
    """The steps of one optimizer, or of several that step together after the same backward.

    ``began`` is the step of the earlier run that this one goes on after, 0 where it goes on from none. Optimizers are
    held weakly; ``last_facts`` is what was known of model and optimizers when another optimizer was made.
    """

    name: str
    history: History
    joined: list[weakref.ref[torch.optim.Optimizer]] = field(default_factory=list)
    parameters: list[Tensor] = field(default_factory=list)
    signature: tuple[int, ...] = ()
    model: Model | None = None
    tensor_names: tuple[str, ...] = ()
    writer: SegmentWriter | None = None
    tables: dict[str, TableWriter] = field(default_factory=dict)
    instruments: MeasurementSchedule | None = None
    step: int = 0
    began: int = 0
    pending: Measurement | None = None
    updating: bool = False
    joint: JointSteps | None = None
    last_facts: dict[str, Any] | None = None

    def join(self, optimizer: torch.optim.Optimizer) -> None:
        """``optimizer`` steps in this stream from now on."""
        self.joined.append(weakref.ref(optimizer))

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Those that the script still has, in the order in which they joined."""
        return [optimizer for held in self.joined if (optimizer := held()) is not None]

    def release(self) -> None:
        """The script has let go of the optimizers: no step follows, and the model is the script's to free."""
        if self.instruments is not None:
            self.instruments.release()
        self.joined, self.parameters, self.signature = [], [], ()
        self.model, self.joint, self.pending, self.updating = None, None, None, False

    @property
    def together(self) -> bool:
        """Whether several ranks train this model in step."""
        return self.joint is not None

    @property
    def device(self) -> torch.device:
        return self.parameters[0].device if self.parameters else torch.device("cpu")

    @property
    def own_steps(self) -> int:
        """Steps that this process made."""
        return self.step - self.began

    def roots(self) -> Iterator[nn.Module]:
        """The modules whose state is the model's: the top ones that hold a parameter of the optimizer."""
        wanted = {id(parameter) for parameter in self.parameters}
        for root in self.model.roots if self.model else ():
            if any(id(parameter) in wanted for parameter in root.parameters()):
                yield root
