"""Counts whether several optimizers take turns.

They do if a stream steps again after another one. One training after the other is no turn.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from steadytrain.capture.step.optimizer_streams import Stream

TURNS_MIN = 2


class TurnsTaken:
    """Serves all streams of a run."""

    def __init__(self) -> None:
        self._last: weakref.ref[Stream] | None = None
        self._changes = 0

    def stepped(self, stream: Stream) -> bool:
        """``stream`` has made a step. Returns whether several have taken turns so far."""
        last = self._last() if self._last is not None else None
        if last is not stream:
            self._changes += last is not None
            self._last = weakref.ref(stream)
        return self._changes >= TURNS_MIN

    def may_be_next(self, stream: Stream, streams: Sequence[Stream]) -> bool:
        """Whether another optimizer may step before ``stream`` does again: several exist and have taken turns, or do
        with this step, or that is not known yet."""
        others = [one for one in streams if one is not stream and one.optimizers]
        last = self._last() if self._last is not None else None
        return bool(others) and (self._changes >= TURNS_MIN or last is not stream)
