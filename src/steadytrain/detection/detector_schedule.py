"""Whose turn it is to look: the detectors beside training, spread over the steps so that none waits for all of them.

A look is at the steps up to the last multiple of 16, and its detectors take turns in the 16 steps after it, two or so a
step. All see the same window, so what one works out of a signal the next one finds ready. The hasty ones look at
everything every 8 steps while the run is young. Not here: what becomes of a symptom (``run_recorder``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.core.model import Symptom, Window
from steadytrain.detection.named_lines import named_line
from steadytrain.detectors import Detector
from steadytrain.grouping import classified
from steadytrain.grouping.catalog import detector_name

if TYPE_CHECKING:
    from steadytrain.capture.step.optimizer_streams import Stream

LOOK_STEPS = 16
HASTY_STEPS, YOUNG_STEPS = 8, 512
METRICS = "metrics"


class DetectorSchedule:
    """The detectors that still work: one that raises is reported once and not run again."""

    def __init__(self, detectors: Sequence[Detector], guard: Guard) -> None:
        # Detectors of one signal are grouped: it is followed once for all of them.
        self._detectors = [_Asked(one) for one in sorted(detectors, key=lambda detector: detector.needs[:1])]
        self._guard = guard
        self._read: dict[tuple[str, str], tuple[int, ...]] = {}
        self._windows: dict[str, Window] = {}
        self.looked: set[str] = set()
        self.steps_needed = {detector_name(type(detector)): detector.steps_needed for detector in detectors}
        self.names = {detector_name(type(detector)) for detector in detectors}

    def turn(self, stream: Stream) -> tuple[Window, list[Symptom]]:
        """What the detectors see whose turn is at this step of ``stream``, and the scalars of the steps they saw."""
        turn = stream.step % LOOK_STEPS
        count = len(self._detectors)
        first, last = -(-turn * count // LOOK_STEPS), -(-(turn + 1) * count // LOOK_STEPS)
        until = stream.step - turn
        scalars = self._windows.get(stream.name)
        if scalars is None or not len(scalars) or int(scalars.steps[-1]) != until:
            scalars = self._windows[stream.name] = stream.history.window(until=until)
        asked = self._detectors[first:last]
        if stream.step > YOUNG_STEPS:
            return scalars, self._ask(stream, asked, scalars)
        found = self._ask(stream, [one for one in asked if not one.detector.hasty], scalars)
        if stream.step % HASTY_STEPS == 0:
            hasty = [one for one in self._detectors if one.detector.hasty]
            found += self._ask(stream, hasty, stream.history.window())
        return scalars, found

    def all(self, stream: Stream) -> tuple[Window, list[Symptom]]:
        """What every detector sees now."""
        self._read.clear()
        scalars = stream.history.window()
        return scalars, self._ask(stream, list(self._detectors), scalars)

    def _ask(self, stream: Stream, asked: list[_Asked], scalars: Window) -> list[Symptom]:
        found: list[Symptom] = []
        tensors: Window | None = None
        for one in asked if len(scalars) else ():
            window = scalars
            if one.reads_norms:
                window = tensors = tensors or stream.history.recent(until=int(scalars.steps[-1]))
            if not self._has_news(one, window):
                continue
            self.looked.add(one.name)
            try:
                seen = one.detector.check(window)
            except Exception as error:
                self._guard.report(f"the detector {type(one.detector).__name__}", error)
                self._detectors.remove(one)
                continue
            found += [
                replace(classified(scalars, symptom), stream=stream.name, at=named_line(symptom.message))
                for symptom in seen
            ]
        return found

    def _has_news(self, asked: _Asked, window: Window) -> bool:
        """Whether there is new input. For tables alone, only if one was read since this detector ran."""
        if not asked.needs:
            return True
        if not any(window.has(need) for need, _ in asked.needs):
            return False
        if asked.reads_signals:
            return True
        key = (window.stream, asked.name)
        newest = tuple([_newest(table, window) for _, table in asked.needs])
        known, self._read[key] = self._read.get(key), newest
        return known != newest


class _Asked:
    """A detector, with what is asked about it in every step: its name, and each need with its table. The table is
    ``metrics`` for these, and "" for a signal."""

    __slots__ = ("detector", "name", "needs", "reads_norms", "reads_signals")

    def __init__(self, detector: Detector) -> None:
        self.detector = detector
        self.name = detector_name(type(detector))
        self.needs = [(need, _table(need)) for need in detector.needs]
        self.reads_norms = "gradient_norms" in detector.needs
        self.reads_signals = not all(table for _, table in self.needs)


def _table(need: str) -> str:
    table, _, column = need.partition(".")
    return table if column or need == METRICS else ""


def _newest(table: str, window: Window) -> int:
    """The step of the newest reading, -1 where there is none."""
    if table == METRICS:
        return max((int(series.steps[-1]) for series in window.metrics.values() if len(series)), default=-1)
    held = window.tables.get(table)
    return int(held.steps[-1]) if held is not None and len(held) else -1
