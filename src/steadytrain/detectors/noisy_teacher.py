"""A frozen module beside the model that runs with its dropout on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Severity, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import ScriptRow, script_rows


@final
@dataclass(frozen=True)
class NoisyTeacher(ScriptRule):
    """A teacher, a reference or a frozen encoder runs without gradients in training mode: its dropout is on.

    Means:
        The weights of the module stay as they are, so nothing profits from its dropout. Its
        outputs differ from call to call for the same input: what the model is compared with is noisy, and worse than
        what the module can do. A copy whose weights follow the model is left alone: its noise may be meant. It is a
        note if the module is a part of the model that is trained, such as a frozen encoder.

    Causes:
        - `teacher.eval()` forgotten, or called before `load_state_dict` in a function that calls `train()` afterwards
        - `model.train()` on a module that holds the teacher: `train()` reaches all submodules
        - a reference or reward model made by `deepcopy` of a model in training mode

    Next:
        1. `teacher.eval()` after it was made, and after each `train()` of a module that holds it.
        2. Check: two calls with one input must give equal outputs.
    """

    steps_min: int = threshold(24, "of the first 32 steps in which it runs")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        teachers: list[tuple[ScriptRow, Severity]] = [(row, "warning") for row in script_rows(window, "noisy-teacher")]
        parts: list[tuple[ScriptRow, Severity]] = [(row, "note") for row in script_rows(window, "noisy-part")]
        return tuple(
            Symptom(
                name="noisy-teacher",
                severity=severity,
                first_step=1,
                last_step=int(window.steps[-1]),
                message=f"{row.place} runs without gradients in training mode, and nothing trains it: its dropout "
                "changes its outputs from call to call",
                signals=("script.value",),
                numbers={"steps": row.last},
            )
            for row, severity in (*teachers, *parts)
            if row.last >= self.steps_min
        )[:1]
