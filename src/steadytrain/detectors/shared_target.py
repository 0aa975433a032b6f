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
    """A target or a reference runs without gradients on the very parameters that are trained.

    Means:
        A target network, a momentum encoder or a reference is a second name of the model, was made with `copy.copy`, or
        was given the model's own layers.
        It is no copy: it has the same tensors, and moves with every update. Targets chase the model, and values grow
        without bound; a reference never differs from what it should be compared with.

    Causes:
        - `ref_model = policy`, which is the model itself and no copy of it
        - `copy.copy(model)`, which copies the module and not its parameters
        - `target.layers = model.layers`, or a constructor that was given the model's parts
        - no fault: a wrapper of the model's own class, for evaluation in each step

    Next:
        1. `copy.deepcopy(model)`, and `requires_grad_(False)` on the copy.
        2. Check: `target.weight is model.weight` must be False for a layer of both.
    """

    steps_min: int = threshold(16, "of 32 steps in which it runs: half of them")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        named = tuple(
            self.warning(
                window,
                row,
                f"{row.place} gives the trained model a second name for its target or reference, and makes no copy: "
                "it moves with each update",
                lines=1.0,
            )
            for row in script_rows(window, "aliased-reference")[:1]
        )
        second = tuple(
            self.warning(
                window,
                row,
                f"{row.place}, which runs without gradients in each step, is the very model that is trained, so it "
                "moves with each update",
                steps=row.last,
            )
            for row in script_rows(window, "second-name")[:1]
        )
        copies = tuple(
            Symptom(
                name="shared-target",
                severity="warning",
                first_step=1,
                last_step=int(window.steps[-1]),
                message=f"a second {row.place} that runs without gradients has the same parameters as the one "
                "that is trained, so it moves with each update",
                signals=("script.value",),
                numbers={"steps": row.last},
            )
            for row in script_rows(window, "shared-copy")[:1]
            if row.last >= self.steps_min
        )
        return named or second or copies
