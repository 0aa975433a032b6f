"""A buffer of the model holds NaN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.core.model import Symptom, Window
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class NanBuffer(ScriptRule):
    """A buffer of the model holds NaN, and stays so: evaluation is NaN while the training loss looks normal.

    Means:
        Every 16 steps the small floating-point buffers are read. One forward with NaN or Inf in its batch is enough to
        make the running mean and variance of a batch norm NaN, and an average with NaN never leaves it. In training
        mode the statistics of the batch are used and the loss is finite; in evaluation mode all outputs are NaN. A
        checkpoint that is written now holds it, too.

    Causes:
        - a batch that is not finite, in a step that the script itself skipped: its forward had already been made
        - a running average, a queue or a normaliser of the script that took in one such value
        - a checkpoint from such a run

    Next:
        1. Check the inputs before the forward, not the loss after it.
        2. Set the buffers anew (`reset_running_stats()`), or load those of a checkpoint from before.
        3. Or let steadytrain refuse the step: `--policy skip` puts the buffers back, too.
    """

    spoils_weights: ClassVar[bool] = True

    def check(self, window: Window) -> tuple[Symptom, ...]:
        rows = [one for one in script_rows(window, "nan-buffer") if one.steps[-1] >= window.steps[-1] - 2 * 16]
        if not rows:
            return ()
        names = tuple(one.place for one in rows)
        which = f"{names[0]} holds" if len(names) == 1 else f"{names[0]} and {len(names) - 1} more buffers hold"
        text = f"{which} NaN since step {rows[0].steps[0]} or shortly before: in evaluation mode the outputs are NaN"
        return (self.warning(window, rows[0], text, buffers=float(len(names))),)
