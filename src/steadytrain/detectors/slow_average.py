"""An average of the weights that is evaluated is still what it began with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class SlowAverage(ScriptRule):
    """An average of the weights that is evaluated is still mostly what it began with.

    Means:
        A copy of the model takes a small share of the distance to it in each update, as an exponential moving average
        (EMA) does, and the script evaluates this copy. At the end of the run the average still consists of its first
        values by half or more: metrics and samples of it are those of an untrained model, however well the model has
        learned. A copy that runs in the steps, as a target network, may be slow. It is the same if the script puts the
        average into the model for the evaluation, and takes it out again. It is reported when the script ends. An
        average in half precision is also reported if most of its values keep their bits through an update, though they
        are not those of the model: its steps are smaller than the last bit, and round away. A target network in half
        precision is reported for the same reason: it hardly follows, and its targets stay what they were.

    Causes:
        - a decay of 0.999 or 0.9999 in a run of some hundred updates, without a warm-up of the decay
        - an average that is updated once an epoch, with a decay meant for updates
        - an average or a target network in bfloat16 or float16

    Next:
        1. Let the decay grow with the updates, `min(decay, (1 + n) / (10 + n))`, or choose it by the length of the
           run: it forgets over 1 / (1 - decay) updates.
        2. Keep the average in float32, and cast it only for use.
        3. Evaluate the model itself beside its average.
    """

    share_min: float = threshold(0.5, "share of the first values at the end. Chosen")
    kept_share_min: float = threshold(0.5, "share of values that an update leaves as they are. Chosen")
    steps_min: int = threshold(192, "updates of the run: of a shorter one nobody expects an average")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        rows = script_rows(window, "first-weights")
        rounded = script_rows(window, "kept-bits")
        targets = script_rows(window, "target-bits")
        kept = [("average of {}", row) for row in rounded[:1]]
        kept += [("target network {}, a copy that follows the model,", row) for row in targets[:1]]
        return tuple(
            self.warning(
                window,
                row,
                f"the {what.format(row.place)} is kept in half precision, and {row.last:.0%} of its values keep their "
                "bits through an update, though they are not the model's: its updates round away",
                kept=row.last,
            )
            for what, row in kept
            if row.last >= self.kept_share_min
        ) or tuple(
            self.warning(
                window,
                row,
                f"the average of {row.place} that is evaluated is still {row.last:.0%} what it began with, after "
                f"{int(window.steps[-1]):,} updates: its decay is too slow for this run",
                share=row.last,
            )
            for row in rows[:1]
            if row.last >= self.share_min and window.steps[-1] >= self.steps_min
        )
