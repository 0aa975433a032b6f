"""What becomes of a symptom on record after its detector has last seen it.

A detector looks at a window that moves on, so it may no longer find what it found 64 steps ago, just when the course of
it is known: whether the loss came back, and whether a plan of the script explains it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from steadytrain.core.model import Symptom, Window
from steadytrain.grouping import classified
from steadytrain.grouping.courses import HORIZON_STEPS, OPEN

RECENT_STEPS = 64
"""A symptom is reported while it is at most this old: several looks, so that none is lost when one fails."""


def is_recent(symptom: Symptom, newest: int, known: Symptom | None) -> bool:
    """Whether ``symptom`` is not over, or what becomes of it (``known`` as it is on record) is about to be known."""
    if symptom.last_step > newest - RECENT_STEPS:
        return True
    return known is not None and known.course == OPEN and symptom.last_step > newest - 2 * RECENT_STEPS


class OpenCourses:
    """Judges the symptoms of each stream again whose course was open, once for each window that is new."""

    def __init__(self) -> None:
        self._judged: dict[str, int] = {}

    def settled(self, window: Window, symptoms: Iterable[Symptom], seen: Collection[tuple[str, int]]) -> list[Symptom]:
        """Those of ``symptoms`` whose course ``window`` shows. The detectors have just judged what is ``seen``."""
        newest = int(window.steps[-1]) if len(window) else 0
        if self._judged.get(window.stream) == newest:
            return []
        self._judged[window.stream] = newest
        known = [
            classified(window, symptom)
            for symptom in symptoms
            if symptom.course == OPEN
            and symptom.stream == window.stream
            and (symptom.name, symptom.first_step) not in seen
            and int(window.steps[0]) < symptom.first_step <= newest - HORIZON_STEPS
        ]
        return [symptom for symptom in known if symptom.course != OPEN]
