"""A divergence that is summed beside an average."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class UnequalReductions(ScriptRule):
    """A divergence is summed over its row while the other term of the loss is averaged, and so outweighs it.

    Means:
        The reconstruction of a variational autoencoder is a mean over all pixels, its divergence a sum over the latent
        values. The divergence so counts as many times as a row has pixels. It falls to 0 within some hundred steps, the
        code says nothing any more, and each reconstruction is the same blurred mean (posterior collapse).

    Causes:
        - `F.mse_loss(x_hat, x) + kl`, where `kl` is summed over the latent values
        - a published weight of the divergence that was meant for a summed reconstruction

    Next:
        1. Sum the reconstruction over the pixels of a row as well, and divide both by the rows.
        2. Or scale the weight of the divergence down by the number of pixels.
    """

    heavier_min: float = threshold(
        30.0, "how much more it weighs than beside a sum; weights from 1 to 4 are usual there, 10 in papers on factors"
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        rows = [row for row in script_rows(window, "summed-term") if (row.values >= self.heavier_min).all()]
        return tuple(
            self.warning(
                window,
                row,
                f"the reductions do not match in the loss of {row.place}: a divergence (KL) is summed over its row, "
                f"the other term is averaged over all elements, and so outweighed {row.last:.3g} times",
                heavier=row.last,
            )
            for row in rows[:1]
        )
