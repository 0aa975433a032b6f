"""A list that holds one layer many times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class SharedLayers(SourceRule):
    """A list of layers holds one layer many times.

    Means:
        `[layer] * n` copies the reference and not the layer: all places of the list share one set of weights, and what
        prints as a deep model has the parameters of one layer. It trains, and is worse than its size says. This is read
        in the source; names that say that weights are shared are left alone.

    Causes:
        - `nn.ModuleList([Block(dim)] * 6)`, `nn.Sequential(*[nn.Linear(64, 64)] * 3)`, `[nn.Linear(64, 2)] * tasks`
        - a layer that is made before the comprehension: `[layer for _ in range(6)]`
        - no fault: weights that are meant to be shared

    Next:
        1. Make each layer: `[Block(dim) for _ in range(6)]`, or `copy.deepcopy` of one.
        2. Count `sum(p.numel() for p in model.parameters())`.
    """

    kind: ClassVar[str] = "shared-layers"
    says: ClassVar[str] = "puts one layer into a list many times: all of its places share the weights of that layer"
