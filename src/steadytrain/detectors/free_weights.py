"""Learned weights of losses without a bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class FreeWeights(SourceRule):
    """Learned weights of several losses can fall to zero, and the losses with them.

    Means:
        The source of the script multiplies losses by learned weights such as `exp(-s)`, and no term keeps `s` from
        growing. The optimizer then makes the weights small instead of the losses: the total falls, and the tasks
        learn less and less.

    Causes:
        - homoscedastic weighting without its logarithm: `exp(-s) * loss` where `exp(-s) * loss + s` is meant
        - `loss / sigma**2` without `log(sigma)`

    Next:
        1. Add the term: `(torch.exp(-s) * losses + s).sum()`.
        2. Print the weights beside the losses.
    """

    kind: ClassVar[str] = "free-weights"
    says: ClassVar[str] = "weighs losses by learned weights that nothing keeps from falling to zero"
