"""The contracts between the watcher and the search for the first bad operation.

The live half does not judge. At an incident the watcher passes an :class:`IncidentContext` to an :class:`Investigator`,
which the code that attaches provides. The investigator returns a finding, or requests one more lap: the script runs its
own loop again with the recorded batch and random state. The update is already refused, and the lap observes every
operation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from steadytrain.capture.step.input_recorder import BufferKeeper, MicroBatch
from steadytrain.capture.step.loss import LossTerm
from steadytrain.capture.step.script_frames import LoopLines
from steadytrain.core.incident import Finding


@dataclass(frozen=True)
class IncidentContext:
    """The failing step, with everything that a rerun needs.

    ``fetched`` are the loaders' batches since the previous step, each with the number of its data set (in order of
    first use). ``loop`` is the function that called the model and backward for the last micro-batch, if it is still
    running. ``alone`` is False if other ranks step together with this one; ``wrappers`` are then the data-parallel
    wrappers around the model, if this rank holds all of it. ``no_lap`` is the reason why the script's loop cannot run
    once more, None if it can.
    """

    step: int
    micro_batches: Sequence[MicroBatch]
    losses: Sequence[LossTerm]
    loss_finite: bool
    parameters: Mapping[str, Tensor]
    roots: Sequence[nn.Module]
    buffers: BufferKeeper
    fetched: Sequence[tuple[int, Any]]
    loop: LoopLines | None
    alone: bool
    no_lap: str | None
    wrappers: tuple[nn.Module, ...] = ()


class LoopRerun(ABC):
    """One more lap of the script's own loop under observation."""

    @abstractmethod
    def forward_begins(self, module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """The script calls a root module with gradients enabled. Returns other arguments, or None."""

    @abstractmethod
    def other_forward_ends(self) -> None:
        """A forward without gradients (an evaluation) ended in between."""

    @abstractmethod
    def backward_begins(self, root: Tensor) -> None:
        """Backward is about to run from ``root``."""

    @abstractmethod
    def fetch(self, dataset: int) -> Any:
        """The batch for a data loader of ``dataset`` to return; ``patches.MISSING`` for the script's own."""

    @abstractmethod
    def gate(self) -> Finding:
        """The lap reached the optimizer again. Returns its finding."""

    @abstractmethod
    def abandon(self, why: str) -> Finding:
        """The lap will not reach the optimizer. Returns what that means for the search."""

    @abstractmethod
    def end(self) -> None:
        """Release everything in the process, in any state; may be called twice."""


class Rehearsal(ABC):
    """A recorded step to rerun in this process, which was launched for that: see ``steadytrain locate``."""

    @abstractmethod
    def begins_after(self, step: int) -> bool:
        """Whether the recorded step comes next, now that the launched script has reached its own ``step``."""

    @abstractmethod
    def prepare(self, incident_context: IncidentContext) -> Finding | LoopRerun:
        """Called at that gate: loads the recorded state into the model and returns the lap, or a finding that explains
        why not."""

    @abstractmethod
    def done(self, finding: Finding) -> None:
        """Receives the result; does not return."""


class Investigator(ABC):
    """Finds the first bad operation of an incident."""

    @abstractmethod
    def look_at_loss(self, incident_context: IncidentContext) -> Finding | None:
        """Called right before backward of a non-finite loss. None if the search must wait for the gate."""

    @abstractmethod
    def investigate(self, incident_context: IncidentContext) -> Finding | LoopRerun:
        """Called at the gate after the update was refused."""
