"""What is handed over at an incident, and what may be asked of the run afterwards.

The live half does not judge: at an incident the watcher hands a :class:`IncidentContext` to an :class:`Investigator`
(the lab's, put in by whoever attaches). It answers with a finding, or asks for one more lap: the script goes round its
own loop once more with the recorded batch and random state, the update already refused, and the lap looks at every
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
    """The failing step, with everything that is needed to do it again.

    ``fetched`` are the batches that data loaders gave since the step before, with the number of the loader's data
    set (in order of first use);
    ``loop`` is the function that called the model and backward for the last micro-batch, where it is still running.
    ``alone`` is False where other ranks step together with this one; ``no_lap`` says why the script cannot be let
    round once more, None when it can.
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


class LoopRerun(ABC):
    """One more round through the script's own loop under observation."""

    @abstractmethod
    def forward_begins(self, module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """A root module is called with gradients on; may replace the arguments."""

    @abstractmethod
    def other_forward_ends(self) -> None:
        """A forward without gradients (an evaluation) ended in between."""

    @abstractmethod
    def backward_begins(self, root: Tensor) -> None:
        """Backward is about to run from ``root``."""

    @abstractmethod
    def fetch(self, dataset: int) -> Any:
        """The batch to give to a data loader of ``dataset``; ``patches.MISSING`` for the script's own."""

    @abstractmethod
    def gate(self) -> Finding:
        """The lap reached the optimizer again: what it saw."""

    @abstractmethod
    def abandon(self, why: str) -> Finding:
        """The lap will not reach the optimizer: what that means for the search."""

    @abstractmethod
    def end(self) -> None:
        """Let go of the process, whatever has happened; may be called twice."""


class Rehearsal(ABC):
    """A recorded step to be done again in this process, which was launched for that: see ``steadytrain locate``."""

    @abstractmethod
    def begins_after(self, step: int) -> bool:
        """Whether the recorded step shall be next, now that the launched script has come to its own ``step``."""

    @abstractmethod
    def prepare(self, incident_context: IncidentContext) -> Finding | LoopRerun:
        """Called at that gate: puts the recorded state into the model and gives the lap, or says why not."""

    @abstractmethod
    def done(self, finding: Finding) -> None:
        """Takes the result; does not return."""


class Investigator(ABC):
    """Finds the first bad operation of a scene."""

    @abstractmethod
    def look_at_loss(self, incident_context: IncidentContext) -> Finding | None:
        """Called right before backward from a loss that is not finite; None when the gate has to look further."""

    @abstractmethod
    def investigate(self, incident_context: IncidentContext) -> Finding | LoopRerun:
        """Called at the gate, when the update was refused."""
