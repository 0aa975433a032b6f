"""Says that a backward draws random numbers, in a script that does not restore the generator for a recomputed forward.

The backward of an activation checkpoint runs its forward again. By default the generator is put back for that and
afterwards, so that it stands after the backward where it stood before. With ``preserve_rng_state=False`` it moves on if
the part draws: the gradients belong to another dropout mask or another sample than the loss.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch

from steadytrain.capture.looks.first_lines import first_line
from steadytrain.capture.looks.script_reading import source_files
from steadytrain.capture.step.input_recorder import RandomState

OPTION = re.compile(r"preserve_rng_state[\"']?\s*[=:]\s*(?!True\b)")
BACKWARDS = 8
"""So many of the first backwards of a training are compared."""


class RecomputedDraws:
    """Compares the states of torch's generators before and after a backward."""

    def __init__(self) -> None:
        self._line: str | None = None
        self._left = BACKWARDS
        self._before: RandomState | None = None
        self._moved = 0

    def begins(self) -> None:
        """An outermost backward is about to run."""
        if self._line is None:
            self._line = first_line(OPTION, source_files())
        self._before = RandomState.take() if self._line and self._left > 0 else None

    def ended(self) -> None:
        """It has run, or failed."""
        before, self._before = self._before, None
        if before is not None:
            now = RandomState.take()
            pairs = zip((before.torch, *before.cuda), (now.torch, *now.cuda), strict=False)
            self._left -= 1
            self._moved += any(not torch.equal(one, other) for one, other in pairs)

    def rows(self) -> Iterator[tuple[str, float]]:
        """The line of the option, once its backwards draw."""
        if self._moved:
            moved, self._moved, self._left = self._moved, 0, 0
            yield f"unlike-recomputation:{self._line}", float(moved)
