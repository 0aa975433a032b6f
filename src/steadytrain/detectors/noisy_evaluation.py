"""The model is evaluated while dropout or batch norm work as in training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class NoisyEvaluation(ScriptRule):
    """The model is evaluated while its dropout, or its batch norm, works as in training.

    Means:
        Between two updates the script called its model without gradients. Either the model was in training mode, with
        dropout or batch norm at work, and the same rows came again in a later evaluation, as validation data does; or
        it was in evaluation mode, and its `forward` calls a dropout that no mode turns off. The evaluation is random
        and too pessimistic, and batch norm takes the validation data into its running statistics. Calls with the same
        rows three times between two updates sample on purpose and do not count. When the script ends, calls after the
        last update count as well, with gradients or without, if they are in training mode and no call in evaluation
        mode follows: a test at the end. It is a note where several optimizers take turns: a generator is sampled from
        in either mode.

    Causes:
        - `model.eval()` is missing before the evaluation
        - `F.dropout(x, p)`, which draws by default, or `nn.Dropout(p)(x)` inside `forward`

    Next:
        1. Call `model.eval()` before each evaluation and `model.train()` after it.
        2. Write `F.dropout(x, p, self.training)`, or make the dropout a module in `__init__`.
        3. Evaluate one batch twice: the results have to be equal to the last bit.
    """

    def check(self, window: Window) -> tuple[Symptom, ...]:
        before = [
            (row, f"is evaluated {how}: {row.last:.0f} calls without gradients before step {row.steps[-1]}")
            for measure, how in HOW.items()
            for row in script_rows(window, measure)
        ]
        ended = [
            (
                row,
                f"is evaluated in training mode after the last update: {row.last:.0f} "
                f"{'call' if row.last == 1 else 'calls'} with rows that were not trained on",
            )
            for row in script_rows(window, "ended-in-training")
        ]
        samples = window.facts.get("optimizers_in_turn", 1.0) > 1
        told = (self.warning(window, row, f"{row.place} {what}", calls=row.last) for row, what in (*before, *ended)[:1])
        return tuple(replace(one, severity="note") if samples else one for one in told)


HOW = {"evaluated-in-training": "in training mode", "evaluated-with": "with dropout that no mode turns off"}
