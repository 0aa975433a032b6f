from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.guard.intervention import Intervention


@final
@dataclass
class Skip(Intervention):
    """Skip the update of the step.

    Weights, moments, step counters and buffers keep their bits (``capture.step.skipping``). Batches, random state and
    schedules go on.
    """

    replayed: ClassVar[bool] = True
    stays: ClassVar[bool] = True
