"""Losses that are kept with their graphs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class KeptGraphs(ScriptRule):
    """Losses are summed or listed together with their graphs, so memory grows with each step.

    Means:
        A loss that is added to a sum, or appended to a list, brings its graph along. After the backward that is a chain
        of nodes, and a tensor on the device for each step; before it, or without one, all activations. The script
        becomes slower, or ends without memory. It is a note where the sum begins anew with each pass or each call of
        the function. This is read in the source.

    Causes:
        - `total += loss` and `losses.append(loss)`, where a number is meant

    Next:
        1. `total += loss.item()`, or `loss.detach()` where a synchronisation with the device costs too much.
        2. Evaluate under `torch.no_grad()`.
    """

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return (*self._of_all(window), *self._of_passes(window))[:1]

    def _of_all(self, window: Window) -> Iterator[Symptom]:
        for row in script_rows(window, "kept-graphs")[:1]:
            yield self.warning(window, row, f"{row.place} keeps each loss of the run together with its graph: {GROWS}")

    def _of_passes(self, window: Window) -> Iterator[Symptom]:
        for row in script_rows(window, "kept-in-epoch")[:1]:
            yield self.note(window, row, f"{row.place} keeps each loss of a pass together with its graph: {GROWS}")


GROWS = "memory grows with the steps; loss.item() or loss.detach() is meant"
