"""An optimizer steps, and none of its parameters ever has a gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class OptimizerWithoutGradients(ScriptRule):
    """An optimizer steps again and again, and none of its parameters ever had a gradient.

    Means:
        A backward runs before each of its steps, and it reaches other parameters only. The optimizer skips parameters
        without a gradient, so its model stays as it was made. Parameters with `requires_grad` False do not count, nor
        do steps without a backward before them, nor parameters that the script changes in another way. It is a note
        until the optimizer has made many steps.

    Causes:
        - `detach` or `no_grad` between this model and its loss (`discriminator(fake.detach())` in the generator's turn)
        - the loss of another model stands in this turn
        - the gradients are cleared after backward and before the step
        - the optimizer holds the parameters of a copy

    Next:
        1. Follow the loss of this step back to the model: where is it detached?
        2. Print `[p.grad is None for p in model.parameters()]` right before the step.
        3. Meant to stay: do not step this optimizer, and call `requires_grad_(False)` on its parameters.
    """

    states_fact: ClassVar[bool] = True
    steps_min: int = threshold(16, "steps without any gradient from the first on, for a warning")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        counts = {row.place: row.last for row in script_rows(window, "without-gradient-of")}
        return tuple(
            Symptom(
                name="optimizer-without-gradients",
                severity="warning" if row.last >= self.steps_min else "note",
                first_step=max(1, int(row.steps[0]) - int(row.values[0]) + 1),
                last_step=int(window.steps[-1]),
                message=f"{row.place} has made {row.last:.0f} steps, and none of its {counts.get(row.place, 0):.0f} "
                "parameters ever had a gradient: it updates nothing",
                signals=("script.value",),
                numbers={"steps": row.last, "parameters": counts.get(row.place, 0.0)},
            )
            for row in script_rows(window, "without-gradient")[:1]
        )
