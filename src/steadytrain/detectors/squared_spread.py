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
        The divergence of the script takes `exp(logvar)` for the variance, and the code is drawn with it, or with its
        logarithm, as the standard deviation. The noise is not what the divergence counts: mostly too small, so the code
        hides more than it pays for, and samples from the prior do not fit. This is read in the source.

    Causes:
        - `std = torch.exp(logvar)`, or `std = logvar`, where `torch.exp(0.5 * logvar)` is meant

    Next:
        1. `std = torch.exp(0.5 * logvar)`.
    """

    kind: ClassVar[str] = "squared-spread"
    says: ClassVar[str] = (
        "takes logvar or exp(logvar) for a standard deviation, and the divergence takes exp(logvar) for the variance: "
        "exp(0.5 * logvar) is meant"
    )
