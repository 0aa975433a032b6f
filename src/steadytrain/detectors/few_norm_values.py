"""Batch norms that normalise over a handful of values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class FewNormValues(ScriptRule):
    """Batch norms in training mode normalise over so few values a channel that their statistics are noise.

    Means:
        The mean and the variance of a batch norm are those of rows times places of one batch. Of four values or fewer
        the output says how a row differs from the few beside it, and running statistics average noise: the model
        behaves otherwise in evaluation mode. In all looks at the first steps half of the batch norms or more had so
        few. A single norm behind a pooling, and a last batch that is smaller, are left alone.

    Causes:
        - a batch of 2 to 4 rows, such as that of one device, in front of `BatchNorm1d`
        - `BatchNorm2d` where pooling has left one place of the image
        - accumulation of gradients in place of a larger batch: batch norm does not see the other parts

    Next:
        1. Group or layer norm, which do not depend on other rows.
        2. A larger batch, or `SyncBatchNorm` over devices.
        3. Frozen statistics, if the norms come from an earlier training.
    """

    values_max: float = threshold(4.5, "values a channel. Chosen")
    looks_min: int = threshold(5, "looks that have to find so few, of those of the first steps")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(
            self.warning(
                window,
                row,
                f"batch norms of the loss at {row.place} normalise over {row.last:.0f} values a channel in training "
                "mode: their statistics are noise",
                values=row.last,
            )
            for row in script_rows(window, "norm-values")
            if len(row.values) >= self.looks_min and (row.values <= self.values_max).all()
        )[:1]
