"""Counts the backward passes of the training loop that no update follows.

Not here: whether they are a fault. The loop is known by its lines: those whose backward an update has followed before.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from steadytrain.capture.looks.held_parameters import is_sharded
from steadytrain.capture.looks.repeated_inputs import digest_of
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.step.script_frames import user_frames

TOLD_FIRST, TOLD_RATIO = 64, 4
"""Backward passes without an update at which a look first reports them, and again at each multiple."""

USUAL_RATIO = 8
"""As many times the most backward passes that an update has had so far: a loop that accumulates is none."""

STEPS_MIN = 16
"""Updates before, without which it is not known what is usual."""

FRAMES = 3
LINES_MAX = 64
PARAMETERS_MAX = 8

Lines = tuple[tuple[str, int], ...]
"""Files and lines of the innermost functions of the script, innermost first."""


class StoppedUpdates:
    """Follows all streams of a process together: an update of any optimizer ends the count."""

    def __init__(self) -> None:
        self._steps = 0
        self._usual = 1
        self._count = self._discarded = 0
        self._lines: Lines = ()
        self._known: set[Lines] = set()
        self._before = b""
        self._due = TOLD_FIRST
        self._told: dict[str, float] = {}

    def backward_begins(self, streams: list[Stream]) -> Iterator[tuple[str, float]]:
        """Rows, now and then, where the script calls backward.

        ``without-update:LINE`` is the number of backward passes since the last update, by the lines of the loop, while
        the parameters of ``streams`` keep their values. ``discarded:LINE`` is how often gradients were cleared in these
        passes.
        """
        self._count += 1
        if self._count == 1 and (self._steps < STEPS_MIN or self._steps % STEPS_MIN == 0):
            self._lines = _lines()
        if self._steps < STEPS_MIN or not streams:
            return
        if self._count == self._usual + 1:
            self._before = _values(streams)
        if self._count < max(self._due, USUAL_RATIO * self._usual):
            return
        self._due = self._count * TOLD_RATIO
        lines = _lines()
        if lines in self._known and self._before and _values(streams) == self._before:
            place = f"{Path(lines[0][0]).name}:{lines[0][1]}"
            self._told = {
                f"without-update:{place}": float(self._count),
                f"discarded:{place}": float(self._discarded),
            }
            yield from self._told.items()

    def zeroed(self) -> None:
        self._discarded += self._count > 0

    def updated(self) -> Iterator[tuple[str, float]]:
        """The row after an update: ``updates-again:LINE`` is the number of passes without one, if they were told."""
        if self._lines and len(self._known) < LINES_MAX:
            self._known.add(self._lines)
        for name in list(self._told)[:1]:
            yield f"updates-again:{name.partition(':')[2]}", float(self._count)
        self._steps += 1
        self._usual = max(self._usual, self._count)
        self._count = self._discarded = 0
        self._lines, self._before, self._due, self._told = (), b"", TOLD_FIRST, {}

    def passed_over(self) -> None:
        """Steps passed that were not looked at."""
        self._count = self._discarded = 0
        self._lines, self._before, self._due, self._told = (), b"", TOLD_FIRST, {}


def _lines() -> Lines:
    return tuple((one.code.co_filename, one.line) for one in user_frames()[:FRAMES])


def _values(streams: list[Stream]) -> bytes:
    """A digest of sampled values of what the optimizers hold; empty where they cannot be read."""
    found = [one.detach() for stream in streams for one in stream.parameters[:PARAMETERS_MAX]]
    if any(is_sharded(stream.parameters) for stream in streams):
        return b""
    return digest_of(*found)
