"""A state that is loaded, and is the model's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.core.model import Symptom, Window
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class UncopiedState(ScriptRule):
    """A model loaded a state that is made of its own tensors: the load changed nothing.

    Means:
        `best = model.state_dict()` keeps references to the model's tensors, and no copy of them. They change with every
        update. When the best weights are loaded at the end, they are the last ones, and what is evaluated and saved is
        not what was chosen.

    Causes:
        - `best_state = model.state_dict()` without `copy.deepcopy`, or without a file in between
        - no fault: a state that goes through a wrapper and back, to change nothing

    Next:
        1. `best_state = copy.deepcopy(model.state_dict())`, or `torch.save` it.
        2. Evaluate after the load: the score must be that of the step that was chosen.
    """

    is_act: ClassVar[bool] = True

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(
            Symptom(
                name="uncopied-state",
                severity="warning",
                first_step=int(row.steps[0]),
                last_step=int(row.steps[-1]),
                message=f"after step {int(row.steps[-1])}, {row.place} loaded a state that is made of the model's own "
                "tensors: it was never copied, and loading it changes nothing",
                signals=("script.value",),
                numbers={"tensors": row.last},
            )
            for row in script_rows(window, "own-state-loaded")
        )[:1]
