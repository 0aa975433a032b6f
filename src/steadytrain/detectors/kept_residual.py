"""A residual of compressed gradients that keeps what was sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class KeptResidual(SourceRule):
    """The residual of compressed gradients is stored whole: what was sent is sent again in each step.

    Means:
        Error feedback adds what was not sent to the next gradient. If the residual also keeps what was sent, the same
        gradient is applied again and again, a little larger each time. The loss falls at first, then swings and grows.

    Causes:
        - `memory = corrected` in place of `memory = corrected - sent`
        - a copy is stored before the sent entries are set to 0
        - `residual[places].zero_()`, which clears a copy

    Next:
        1. Store what was not sent: `memory = corrected - sent`.
        2. Check over some steps that what was sent plus the residual equals the sum of the gradients.
    """

    kind: ClassVar[str] = "kept-residual"
    says: ClassVar[str] = (
        "keeps what was sent in the residual (error feedback) of a compressed gradient: it is not taken out, or only "
        "from a copy, so it is sent again and again; keep only the rest, as in residual[sent] = 0 or corrected - sent"
    )
