"""Loaded weights that are those of the model times a number below one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class ShrunkenLoads(ScriptRule):
    """Weights are loaded again and again that are the model's own times a number below one: an average that shrinks.

    Means:
        The average of models that were trained on from one model lies near it. These loads lie near it times a number
        that changes from load to load, in all tensors alike: the coefficients of the average do not add up to one. Each
        load shrinks the weights, and the model forgets.

    Causes:
        - coefficients that were divided by a total over all members, while only some of them took part (stragglers,
          sampled clients, failed workers)
        - a sum over models that is divided by one more than there are

    Next:
        1. Divide by the total over those that take part, and assert that the coefficients add up to one.
        2. Compare the norm of the weights before and after a merge.
    """

    loads_min: int = threshold(3, "loads that shrank the weights, by numbers that differ")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        counts = {row.place: row.last for row in script_rows(window, "scaled-loads")}
        return tuple(
            self.warning(
                window,
                row,
                f"{row.place} loads weights that are the model's own times {row.last:.2g} (the median of "
                f"{counts.get(row.place, 0.0):.0f} loads): the coefficients of an average do not add up to one, so "
                "each merge shrinks all weights; divide by the total over those that took part",
                share=row.last,
            )
            for row in script_rows(window, "scaled-load")
            if counts.get(row.place, 0.0) >= self.loads_min
        )[:1]
