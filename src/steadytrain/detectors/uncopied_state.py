"""A best model or state that is the model's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.core.model import Symptom, Window
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class UncopiedState(ScriptRule):
    """The state or the model that is kept as the best one is the model's own, and goes on training.

    Means:
        `best = model.state_dict()` keeps references to the model's tensors, and no copy of them. They change with every
        update. When the best weights are loaded at the end, they are the last ones, and what is evaluated and saved is
        not what was chosen. `best_model = model` is a second name and no copy, too. A load of such a state is seen when
        it is made; a best one that is used or saved after the loop is read in the source.

    Causes:
        - `best_state = model.state_dict()` without `copy.deepcopy`, or without a file in between
        - `best_model = model` in the loop that trains it
        - no fault: a state that goes through a wrapper and back, to change nothing

    Next:
        1. `best_state = copy.deepcopy(model.state_dict())`, or `torch.save` it when it is the best.
        2. Evaluate what was kept: the score must be that of the step that was chosen.
    """

    is_act: ClassVar[bool] = True

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return (*self._loaded(window), *self._kept(window))

    def _loaded(self, window: Window) -> tuple[Symptom, ...]:
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

    def _kept(self, window: Window) -> tuple[Symptom, ...]:
        rows = script_rows(window, "kept-by-reference")
        return tuple(
            self.warning(
                window,
                row,
                f"{row.place} keeps the best model or state without a copy: it goes on training, and what is used "
                "after the loop is the last one",
                lines=float(len(rows)),
            )
            for row in rows[:1]
        )
