"""A copy of the weights is evaluated with the running statistics that it began with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class KeptStatistics(ScriptRule):
    """A copy whose weights follow the model is evaluated with batch norms that still have their first statistics.

    Means:
        An average of the weights (EMA, SWA) or a target network takes in the parameters of the model, and not its
        buffers. In evaluation mode its batch norms normalise with the running mean and variance that they began with,
        0 and 1 in a new model, while the layers before them are others by now. Its metrics are wrong, however good the
        weights are. It is reported when the script ends; copies whose statistics move, or that run in training mode,
        are left alone.

    Causes:
        - a loop over `parameters()` that leaves out `buffers()`
        - `torch.optim.swa_utils.AveragedModel` without `update_bn` before the evaluation

    Next:
        1. Copy the buffers after each update of the copy: `for a, b in zip(ema.buffers(), model.buffers()):
           a.copy_(b)`, or make it with `AveragedModel(model, use_buffers=True)`.
        2. Or call `torch.optim.swa_utils.update_bn(loader, ema)` once before the evaluation.
    """

    share_min: float = threshold(0.25, "share of the channels whose statistics differ clearly from the model's. Chosen")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(
            self.warning(
                window,
                row,
                f"the averaged copy of {row.place} that is evaluated follows the weights of the model and not its "
                f"buffers: its batch norms still have their first statistics, and those of the model differ in "
                f"{row.last:.0%} of the channels",
                share=row.last,
            )
            for row in script_rows(window, "kept-statistics")
            if row.last >= self.share_min
        )[:1]
