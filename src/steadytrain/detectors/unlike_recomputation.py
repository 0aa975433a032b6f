"""A recomputed forward that draws other random numbers than the first one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class UnlikeRecomputation(SourceRule):
    """An activation checkpoint does not restore the random state, and what it runs again draws other random numbers.

    Means:
        The backward of a checkpoint computes its forward a second time. With `preserve_rng_state=False` that forward
        has another dropout mask, another latent sample, another route, so the gradients are those of another loss. The
        model learns slowly or not at all; the standard deviation of a latent stays where it began. In the first
        backwards of this run the random state moved, which no backward does that restores it.

    Causes:
        - `preserve_rng_state=False`, for speed, over a part with dropout or sampling
        - a noise layer that was added later to a part that is checkpointed

    Next:
        1. Leave the option out: `checkpoint(part, x, use_reentrant=False)`.
        2. Or draw the noise outside of the part, and pass it in.
    """

    kind: ClassVar[str] = "unlike-recomputation"
    says: ClassVar[str] = (
        "keeps no random state for the recomputed forward (preserve_rng_state), and the backward draws: its dropout "
        "masks or samples are others than those of the loss"
    )
