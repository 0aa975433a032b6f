"""The memory of one batch in the rows of the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class CarriedState(SourceRule):
    """A recurrent layer begins each batch with the state that an unrelated batch left.

    Means:
        The source of the script hands the last state of one batch to the next one, and the batches are shuffled or
        drawn at random. Each row then begins with the memory of another row. Nothing is raised; the layer learns to
        ignore its state, or learns from noise.

    Causes:
        - `out, hidden = model(x, hidden)` over a loader with `shuffle=True`
        - `self.hidden = hidden.detach()` in a module, and no reset before a batch

    Next:
        1. Begin each batch with a new state: `out, _ = model(x)`, or `hidden = None` in the loop.
        2. If the rows continue each other, do not shuffle: keep the streams in place from batch to batch.
    """

    kind: ClassVar[str] = "carried-state"
    says: ClassVar[str] = (
        "carries the state of a recurrent layer from one batch to the next, and the batches are unrelated"
    )
