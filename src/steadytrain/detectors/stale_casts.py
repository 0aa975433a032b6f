"""Copies of weights that autocast keeps over an update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class StaleCasts(SourceRule):
    """Autocast computes with copies of the weights from before their last update.

    Means:
        Autocast casts each weight once and keeps the copy until its outermost context ends. The context stays open over
        the update, so the forward still has the weights of its first step. The loss stands still, or follows the
        batches; an evaluation in float32 has another loss, which may grow without bound. One layer was computed with
        the kept copy and with a new one, and they differ.

    Causes:
        - `with torch.autocast(...):` around the loop, or around a phase of it, in place of the forward
        - a context that is entered by hand or by an `ExitStack`, and left at the end of the training
        - a decorator `@torch.autocast(...)` on the function that holds the loop

    Next:
        1. Enter the context in each step, around the forward and the loss.
        2. If it has to stay open: `torch.autocast(..., cache_enabled=False)`.
    """

    kind: ClassVar[str] = "stale-casts"
    says: ClassVar[str] = (
        "opens an autocast context that stays open over the update: its cache still holds the weights of an earlier "
        "step, cast once, so the forward does not see what the optimizer changed"
    )
