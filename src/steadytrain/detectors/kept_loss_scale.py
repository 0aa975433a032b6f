"""Batches that overflow are skipped before the loss scale can be lowered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class KeptLossScale(SourceRule):
    """A batch that overflows is skipped before `scaler.update()`, so the loss scale is never lowered.

    Means:
        The loss scale of mixed precision is lowered by `scaler.update()` after an overflow. If the loop goes on with
        the next batch before that call, the scale stays as it is, and the next batch overflows, too. From the first
        overflow on each batch is skipped: the weights do not move any more, and nothing says so.

    Causes:
        - `if not all_finite(gradients): continue` between the scaled backward and `scaler.update()`
        - a bound for the gradient norm that is compared with scaled gradients

    Next:
        1. Leave the check out: `scaler.step(optimizer)` skips an update with non-finite gradients by itself.
        2. Or call `scaler.step(optimizer)` and `scaler.update()` before the `continue`.
    """

    kind: ClassVar[str] = "kept-scale"
    says: ClassVar[str] = (
        "skips a batch for its gradients before scaler.update() is called, so the loss scale is never lowered after "
        "an overflow, and each later batch overflows and is skipped as well"
    )
