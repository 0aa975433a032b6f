"""The runs of open pages. Each is followed once for all its pages, and read at most once a second.

Bounded: the ``RUNS_MAX`` runs that were asked for last are followed; another one is read from its start.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import numpy as np

from steadytrain.core.model import FloatArray
from steadytrain.live.follower import RunFollower
from steadytrain.live.picture import Picture
from steadytrain.live.served.answers import Answer, document
from steadytrain.live.stretches import Stretched, Stretches, of_values, resampled
from steadytrain.storage.step_ranges import STEPS_MAX, steps_between

RUNS_MAX = 16
FRESH_S = 1.0
STRETCHES = 1 << 15
"""Of the whole run: a million steps are kept in stretches of 32. A closer look reads the steps themselves."""

COLUMNS_MAX = 2000
ANSWERS_MAX = 64
"""Encoded answers of one picture that are kept for the next page: pages differ in their zoom and their width."""


class _Followed:
    """One run with its newest picture, and the answers that were made of that picture."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._follower = RunFollower(path, stretches_max=STRETCHES)
        self._read_at = -FRESH_S
        self._answers: dict[Hashable, Answer] = {}
        self.picture: Picture | None = None

    def refresh(self) -> None:
        with self._lock:
            if self.picture is None or time.monotonic() - self._read_at >= FRESH_S:
                self.picture = self._follower.poll(time.time())
                self._answers.clear()
                self._read_at = time.monotonic()

    def answer(self, key: Hashable, make: Callable[[Picture], dict[str, Any]]) -> Answer:
        with self._lock:
            assert self.picture is not None
            if key not in self._answers:
                if len(self._answers) >= ANSWERS_MAX:
                    self._answers.clear()
                self._answers[key] = document(make(self.picture))
            return self._answers[key]


class RunStates:
    """The followed runs. Safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[Path, _Followed] = OrderedDict()

    def state(self, path: Path, more: Callable[[], dict[str, Any]]) -> Answer:
        """The picture as a document with ``more``, encoded once for all pages that show this run.

        Raises:
            UsageError: the folder is gone or damaged.
        """
        followed = self._fresh(path)
        return followed.answer("state", lambda picture: {**picture.to_json(), **more()})

    def curve(self, path: Path, signal: str, span: tuple[int, int] | None, columns: int) -> Answer:
        """A curve in columns, of the whole run or of the steps of ``span``. Extremes, never means."""
        followed = self._fresh(path)
        return followed.answer(
            (signal, span, columns), lambda picture: _curve_document(path, picture, signal, span, columns)
        )

    def _fresh(self, path: Path) -> _Followed:
        followed = self._followed(path)
        try:
            followed.refresh()
        except BaseException:
            self._forget(path)
            raise
        return followed

    def _followed(self, path: Path) -> _Followed:
        with self._lock:
            if path not in self._runs:
                self._runs[path] = _Followed(path)
                while len(self._runs) > RUNS_MAX:
                    self._runs.popitem(last=False)
            self._runs.move_to_end(path)
            return self._runs[path]

    def _forget(self, path: Path) -> None:
        with self._lock:
            self._runs.pop(path, None)


def _curve_document(
    path: Path, picture: Picture, signal: str, span: tuple[int, int] | None, columns: int
) -> dict[str, Any]:
    shown = next((curve for curve in picture.curves if curve.signal == signal), None)
    if shown is None:
        return {"signal": signal, "first": 0, "last": 0, "count": 0}
    held: Stretched | None = shown.whole
    if span is not None:
        held = _cut(shown.whole, span, columns)
        if held is None:
            series = steps_between(path / "steps" / picture.stream, signal, *span)
            stretches = Stretches(max(2, 2 * columns))
            stretches.add(series.steps, series.values)
            held = stretches.held() if len(series) > columns else of_values(series.steps, series.values)
    return _document(signal, held, columns, (shown.whole.first_step, shown.whole.last_step))


def _cut(whole: Stretched, span: tuple[int, int], columns: int) -> Stretched | None:
    """The stretches of these steps. None if they are too coarse for so many columns, and the steps can be read."""
    count = len(whole.smallest)
    width = (whole.last_step - whole.first_step) // count + 1
    start = max(0, (span[0] - whole.first_step) // width)
    stop = min(count, (span[1] - whole.first_step) // width + 1)
    if (stop - start < columns and span[1] - span[0] < STEPS_MAX) or stop <= start:
        return None
    cut = slice(start, stop)
    last = min(whole.last_step, whole.first_step + stop * width - 1)
    parts = (whole.sample[cut], whole.smallest[cut], whole.largest[cut], whole.bad[cut])
    return Stretched(whole.first_step + start * width, last, *parts)


def _document(signal: str, held: Stretched | None, columns: int, run: tuple[int, int]) -> dict[str, Any]:
    if held is None:
        return {"signal": signal, "first": 0, "last": 0, "count": 0, "run": run}
    shown = resampled(held, min(columns, len(held.smallest)))
    return {
        "signal": signal,
        "first": held.first_step,
        "last": held.last_step,
        "count": len(shown.smallest),
        "smallest": _plain(shown.smallest),
        "largest": _plain(shown.largest),
        "sample": _plain(shown.sample),
        "bad": shown.bad.tolist(),
        "run": run,
    }


def _plain(values: FloatArray) -> list[float | None]:
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in values.tolist()]
