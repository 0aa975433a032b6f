"""Only biases and gains of norms are trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.guess_levels import level_of, line_through
from steadytrain.statistics.rolling_baseline import holds_start, stride_of
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class FewTrainedParameters(ScriptRule):
    """The optimizer trains only biases or gains of norms, and all other parameters stay as they are.

    Means:
        At most 2 % of the model's elements are trained, and these are biases and parameters of norms alone. That is a
        note: such fine-tuning of a trained model exists (BitFit). It is a warning if the loss does not fall either.

    Causes:
        - a filter of names that keeps what it should leave out (`if "bias" in name`)
        - `requires_grad_(False)` on the whole model, and only some parts thawed
        - parameter groups for weight decay, of which only the one without decay was given to the optimizer
        - no fault: fine-tuning of biases or norms

    Next:
        1. Count: `sum(p.numel() for g in optimizer.param_groups for p in g["params"] if p.requires_grad)`.
        2. Print the names of the parameters with `requires_grad`.
    """

    flat_steps: int = threshold(128, "first steps over which the loss has to fall. Chosen")
    error_share: float = threshold(0.01, "standard error of the level, as a share of it, above which it is not judged")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        rows = script_rows(window, "trained-elements")
        totals = script_rows(window, "all-elements")
        if not rows or not totals:
            return ()
        row, total = rows[-1], totals[-1].last
        return (
            Symptom(
                name="few-trained-parameters",
                severity="warning" if self._stands(window) else "note",
                first_step=int(row.steps[0]),
                last_step=int(window.steps[-1]),
                message=f"only {row.last:,.0f} of {total:,.0f} elements of the model are trained: {row.place}",
                signals=("script.value",),
                numbers={"trained": row.last, "elements": total},
            ),
        )

    def _stands(self, window: Window) -> bool:
        """Whether the loss has not fallen since the start of the run."""
        loss = window.applied("loss")
        if len(loss) < self.flat_steps or not holds_start(window.steps, stride=stride_of(window.steps)):
            return False
        early, _ = level_of(loss.values[: len(loss) // 4])
        late, error = level_of(loss.values[len(loss) // 2 :])
        return (
            error <= self.error_share * abs(late) and late > early - 2.0 * error and not line_through(loss.values).falls
        )
