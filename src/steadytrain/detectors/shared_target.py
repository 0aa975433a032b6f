"""A target network that shares its parameters with the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class SharedTarget(ScriptRule):
    """A second module of the model's class runs without gradients on the very parameters that are trained.

    Means:
        A target network, a momentum encoder or a reference was made with `copy.copy`, or given the model's own layers.
        It is no copy: it has the same tensors, and moves with every update. Targets chase the model, and values grow
        without bound; a reference never differs from what it should be compared with.

    Causes:
        - `copy.copy(model)`, which copies the module and not its parameters
        - `target.layers = model.layers`, or a constructor that was given the model's parts
        - no fault: a wrapper of the model's own class, for evaluation in each step

    Next:
        1. `copy.deepcopy(model)`, and `requires_grad_(False)` on the copy.
        2. Check: `target.weight is model.weight` must be False for a layer of both.
    """

    steps_min: int = threshold(16, "of 32 steps in which it runs: half of them")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(
            Symptom(
                name="shared-target",
                severity="warning",
                first_step=1,
                last_step=int(window.steps[-1]),
                message=f"a second {row.place} that runs without gradients has the same parameters as the one that is "
                "trained, so it moves with each update",
                signals=("script.value",),
                numbers={"steps": row.last},
            )
            for row in script_rows(window, "shared-copy")[:1]
            if row.last >= self.steps_min
        )
