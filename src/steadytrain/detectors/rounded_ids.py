"""Ids that were held by a 16-bit float."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows

FORMATS = {"float16": 2048, "bfloat16": 256}


@final
@dataclass(frozen=True)
class RoundedIds(ScriptRule):
    """All large ids that an embedding looks up are whole numbers that 16 bits can hold: they were rounded.

    Means:
        float16 holds every whole number up to 2,048, then every second, then every fourth; bfloat16 up to 256. Ids of
        users, items or tokens that pass through such a tensor fall on their neighbours: several share one row of the
        embedding, and most rows are never trained.

    Causes:
        - a table of ids and values that is stored or cast as one 16-bit tensor
        - `batch.half()` or `batch.to(dtype)` on everything that a loader returns
        - no fault: large ids that are given out in steps of two or four

    Next:
        1. Keep ids as int64 from the file to the embedding; cast only what is a value.
        2. Count the different ids before and after: `len(ids.unique())`.
    """

    looks_min: int = threshold(3, "looks that find it")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        for name, exact in FORMATS.items():
            for row in script_rows(window, f"ids-in-{name}"):
                if len(row.steps) >= self.looks_min:
                    return (self._symptom(window, row.place, name, exact, int(row.steps[0]), row.last),)
        return ()

    def _symptom(self, window: Window, place: str, name: str, exact: int, first: int, ids: float) -> Symptom:
        return Symptom(
            name="rounded-ids",
            severity="warning",
            first_step=first,
            last_step=int(window.steps[-1]),
            message=f"all {ids:.0f} ids above {exact:,} that are looked up for the loss of {place} are numbers that "
            f"{name} can hold, so they were rounded to it: neighbours share a row",
            signals=("script.value",),
            numbers={"ids": ids},
        )
