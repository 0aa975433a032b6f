"""A code is sampled with uniform noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class UniformCode(SourceRule):
    """A code is sampled with uniform noise.

    Means:
        The source of the script adds `rand` times a standard deviation to a mean. A variational autoencoder, or a
        policy, means standard normal noise: uniform noise has the mean 0.5 and a twelfth of the variance, so the code
        is shifted and varies too little, and what is sampled afterwards from a normal distribution does not fit.

    Causes:
        - `torch.rand_like(std)` where `torch.randn_like(std)` is meant

    Next:
        1. Draw with `torch.randn_like`.
    """

    kind: ClassVar[str] = "uniform-code"
    says: ClassVar[str] = "samples with uniform noise between 0 and 1: a normal distribution needs torch.randn_like"
