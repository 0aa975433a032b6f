"""A rollout that is flattened in two orders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class MixedOrders(SourceRule):
    """Tables of one rollout are flattened in two orders and read by the same index.

    Means:
        A table [steps, environments] becomes one row. Transposed first, the steps of one environment lie side by
        side; otherwise the environments of one step do. If observations and actions are flattened in one order, and
        advantages or returns in the other, each sample is trained with the advantage of another one. All losses look
        as usual, and the policy does not improve.

    Causes:
        - `obs.transpose(0, 1).reshape(...)` beside `advantages.reshape(-1)`
        - a helper that swaps the axes, used for some of the tables only

    Next:
        1. Flatten all tables by one function.
        2. Check one sample: its advantage must be that of its step and environment.
    """

    kind: ClassVar[str] = "mixed-order"
    says: ClassVar[str] = (
        "flattens this table as it is (time-major), and others of the rollout after a transpose "
        "(environment-major), and both are read by one index: each sample is paired with the advantage or return of "
        "another"
    )
