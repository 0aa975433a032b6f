"""A copy of the model that the loss uses never changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class StaleTarget(ScriptRule):
    """A copy of the model runs in most steps, and still has the values that the model began with.

    Means:
        A target network, momentum encoder or teacher was copied from the model before its first update, is in no
        optimizer, and runs in most steps on other rows than the model. It has not changed since, so the model learns
        from what it was at the start. It is a note, because a target network may be copied after thousands of updates;
        a warning after very many. A copy that runs on the rows of the model, as the reference of a policy does, does
        not count.

    Causes:
        - the interval of the copy is counted in another unit (episodes, updates) than it is compared with
        - the call that updates the copy is missing, or updates a third model
        - an average with a decay of exactly 1
        - no fault: a reference that is fixed on purpose; a copy that is due later

    Next:
        1. Print a weight of the copy every few hundred updates.
        2. Copy with `target.load_state_dict(model.state_dict())`, or average with `lerp_`, once in so many updates.
    """

    warning_steps: int = threshold(
        16_384, "updates without a change before a warning. Usual intervals end at 10,000 environment steps"
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(
            Symptom(
                name="stale-target",
                severity="warning" if row.last >= self.warning_steps else "note",
                first_step=1,
                last_step=int(window.steps[-1]),
                message=f"a copy of {row.place} that runs in most steps was never updated: after {row.last:,.0f} "
                "updates of the model it has the values that the model began with",
                signals=("script.value",),
                numbers={"updates": row.last},
            )
            for row in script_rows(window, "stale-copy")[:1]
        )
