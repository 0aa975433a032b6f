"""A seed that is set in every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class RepeatedSeed(ScriptRule):
    """A random generator gets the same seed again and again: in every step, for each row or in each epoch.

    Means:
        The script sets a constant seed, or makes a generator of a constant seed, inside the loop that trains. Every
        batch gets the same noise, the same augmentation, the same dropout mask or the same choice of rows. The loss
        falls, because the model learns these numbers by heart, and it fails on others. The same holds of a constant
        seed in `__getitem__` or in a `collate_fn`, and of a `worker_init_fn` that seeds by the number of the worker
        alone: workers are begun anew for each epoch, which then draws what the last one drew. This is read in the
        source.

    Causes:
        - `torch.manual_seed(42)` moved from the top of the script into the loop
        - `torch.Generator().manual_seed(0)` in a function that draws the noise of a batch
        - `np.random.default_rng(0)` in an augmentation
        - `worker_init_fn=lambda i: np.random.seed(42 + i)`; `np.random.seed(42)` in `__getitem__`
        - negative samples, masks or crops that a `collate_fn` draws from `torch.Generator().manual_seed(0)`

    Next:
        1. Set the seed, or make the generator, once before the loop, and pass it on.
        2. Where a step must repeat, seed by the step: `manual_seed(seed + step)`.
        3. In a `worker_init_fn`, seed by `torch.initial_seed() % 2**32`, which differs between epochs.
    """

    def check(self, window: Window) -> tuple[Symptom, ...]:
        found = ((row, says) for kind, says in SAID.items() for row in script_rows(window, kind)[:1])
        return tuple(self.warning(window, row, f"{row.place} {says}") for row, says in found)


SAID = {
    "repeated-seed": "gives a random generator the same seed in every step: each step draws the same noise, masks and "
    "rows",
    "row-seed": "gives a random generator the same seed for each row: all rows get the same random numbers",
    "batch-seed": "gives a random generator the same seed for each batch: all batches get the same random numbers",
    "worker-seed": "seeds each worker by its number alone, and workers are begun anew for each epoch: all epochs draw "
    "the same random numbers",
}
"""Measures of the table ``script``, and what the line does."""
