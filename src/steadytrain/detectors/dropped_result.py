"""A result that nothing takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.core.model import Symptom, Window
from steadytrain.detectors import SourceRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class DroppedResult(SourceRule):
    """The result of a call is not used, and the call changes nothing in place: `scores.masked_fill(mask, -1e9)`.

    Means:
        Without the trailing underscore the method makes a new tensor and leaves its own as it was. The line has no
        effect: a mask is not applied, a state is not reset or detached, rows are not shuffled. No error is raised.
        This is read in the source, for names that work out of place only.

    Causes:
        - `masked_fill`, `index_fill`, `clamp`, `scatter_add` or `detach` as a statement of its own
        - `torch.clamp(x, 0, 1)`, `F.normalize(x)` or `np.clip(x, 0, 1)` without an assignment
        - `table.dropna()` or `table.fillna(0)` without an assignment; `rng.permutation(rows)` in place of `shuffle`

    Next:
        1. Assign it: `scores = scores.masked_fill(mask, -1e9)`.
        2. Or call the form that works in place: `scores.masked_fill_(mask, -1e9)`, `rng.shuffle(rows)`.
    """

    kind: ClassVar[str] = "dropped-result"
    says: ClassVar[str] = (
        "changes nothing in place, and its result is not used: the line has no effect; assign the result, or call the "
        "form that works in place"
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        rows = script_rows(window, self.kind)
        lines = float(len(rows))
        return tuple(self.warning(window, row, f"{_call(row.place)} {self.says}", lines=lines) for row in rows[:1])


def _call(place: str) -> str:
    """``train.py:7, scores.masked_fill(...),`` of ``train.py:7:scores.masked_fill``."""
    line, _, called = place.rpartition(":")
    return f"{line}, {called}(...)," if ":" in line else place
