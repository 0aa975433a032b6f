"""Outputs grow towards the largest number of their format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import Cells, FloatArray, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.table_episodes import APART_STEPS, Episode, all_cells, episodes

FLOAT8_FIRST = 4
"""From this value of the column `dtype` on outputs are float8, which is scaled to reach its end."""


@final
@dataclass(frozen=True)
class PrecisionHeadroom(Detector):
    """A module's output grows towards the largest number that its dtype can hold.

    Means:
        The largest magnitude has grown to a quarter or more of the dtype's maximum. In float16 that maximum is 65,504:
        next comes Inf in the forward pass, then a skipped step with a gradient scaler and NaN without one. "critical"
        means that less than a fifth is left. An output at the limit from the start does not count: masks hold the
        smallest finite number.

    Causes:
        - residual stream or logits that grow without bound in float16 (OPT: divergence went with the last
          activations' norm)
        - attention scores that are not scaled before the product, or that grow (see attention-logit-growth)
        - sums over long sequences or large images in float16: means, norms, variances, softmax denominators
        - a few channels that are far larger than the others and grow during training

    Next:
        1. Move the named module to bfloat16 or float32, or the whole run to bfloat16.
        2. Check whether it grows with the loss: then the run diverges, and the dtype only shows it first.
        3. Scale before the product instead of after it; compute norms, softmax and losses in float32.
        4. Clip, normalise or decay what feeds it: weight decay, a norm before it, a softcap.
    """

    needs: ClassVar[tuple[str, ...]] = ("modules.headroom",)

    headroom_max: float = threshold(
        0.25,
        "share of the dtype's range in use: two doublings are left. Chosen; healthy float16 models "
        "with their few huge channels use about a tenth",
    )
    critical_headroom_max: float = threshold(
        0.8, "less than a fifth of the range is left: one more bad batch overflows"
    )
    growth_ratio: float = threshold(
        2.0, "the largest reading must be this many times the smallest recorded one to count as growth"
    )
    sustained_readings: int = threshold(3, "readings in a row, 16 steps apart or more: one batch may hold an outlier")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        cells = all_cells(window, "modules", "headroom", apart_steps=APART_STEPS)
        if cells is None:
            return ()
        beyond = cells.values > self.headroom_max
        if not beyond.any():
            return ()
        beyond &= _ratio(cells.values) >= self.growth_ratio
        dtypes = all_cells(window, "modules", "dtype", apart_steps=APART_STEPS)
        if dtypes is not None:
            beyond &= ~(np.nan_to_num(np.nanmax(_no_empty(dtypes.values), axis=0)) >= FLOAT8_FIRST)
        found = episodes(window, cells, beyond, readings=self.sustained_readings)
        return tuple(self._symptom(cells, episode) for episode in found)

    def _symptom(self, cells: Cells, episode: Episode) -> Symptom:
        values = cells.values[episode.first : episode.last + 1][:, episode.positions]
        largest = float(np.nanmax(values))
        return Symptom(
            name="precision-headroom",
            severity="critical" if largest > self.critical_headroom_max else "warning",
            first_step=episode.first_step,
            last_step=episode.last_step,
            message=f"the output of {episode.who('modules')} reached {largest:.0%} of the largest number of its "
            f"format {episode.when()}",
            signals=("modules.headroom",),
            tensors=episode.names,
            numbers={
                "headroom": largest,
                "headroom_smallest_in_view": float(np.nanmin(cells.values[:, episode.positions])),
                "modules": float(len(episode.rows)),
            },
        )


def _ratio(values: FloatArray) -> FloatArray:
    """Largest over smallest reading of each row; 0 where there is none."""
    filled = _no_empty(values)
    largest, smallest = np.nanmax(filled, axis=0), np.nanmin(filled, axis=0)
    ratio: FloatArray = np.divide(largest, smallest, out=np.full(len(largest), np.inf), where=smallest > 0)
    return ratio


def _no_empty(values: FloatArray) -> FloatArray:
    """Rows without any reading as zeros, which NumPy reduces without a warning."""
    filled: FloatArray = np.where(np.isnan(values).all(axis=0), 0.0, values)
    return filled
