"""A code whose standard deviation is a variance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class SquaredSpread(SourceRule):
    """A code is sampled with the variance where the standard deviation is meant.

    Means:
        The divergence of the script takes `exp(logvar)` for the variance, and the code is drawn with it as the standard
        deviation. The noise is the square of what the divergence counts: too small where the deviation is below 1, so
        the code hides more than it pays for, and samples from the prior do not fit. This is read in the source.

    Causes:
        - `std = torch.exp(logvar)` where `torch.exp(0.5 * logvar)` is meant

    Next:
        1. `std = torch.exp(0.5 * logvar)`.
    """

    kind: ClassVar[str] = "squared-spread"
    says: ClassVar[str] = (
        "takes exp(logvar) for a standard deviation, and the divergence takes it for the variance: exp(0.5 * logvar) "
        "is meant"
    )
