"""A seed that is set in every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class RepeatedSeed(SourceRule):
    """A random generator gets the same seed in every step, so each step draws the same numbers.

    Means:
        The script sets a constant seed, or makes a generator of a constant seed, inside the loop that trains. Every
        batch gets the same noise, the same augmentation, the same dropout mask or the same choice of rows. The loss
        falls, because the model learns these numbers by heart, and it fails on others. This is read in the source.

    Causes:
        - `torch.manual_seed(42)` moved from the top of the script into the loop
        - `torch.Generator().manual_seed(0)` in a function that draws the noise of a batch
        - `np.random.default_rng(0)` in an augmentation

    Next:
        1. Set the seed, or make the generator, once before the loop, and pass it on.
        2. Where a step must repeat, seed by the step: `manual_seed(seed + step)`.
    """

    kind: ClassVar[str] = "repeated-seed"
    says: ClassVar[str] = (
        "gives a random generator the same seed in every step: each step draws the same noise, masks and rows"
    )
