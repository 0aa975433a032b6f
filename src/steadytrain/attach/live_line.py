"""One line below a notebook's cell while it trains: step, loss, speed, and what is wrong so far.

It is a sink like any other: it is handed what was recorded, and measures nothing. The line is a display of the notebook
that is updated at most twice a second; where no notebook shows it, nothing is made and nothing is printed.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from typing import Any, Protocol, final

import numpy as np

from steadytrain.core.incident import Action, Incident
from steadytrain.core.interactive import shell
from steadytrain.core.model import SEVERITIES, Reading, Symptom
from steadytrain.core.own_errors import own
from steadytrain.detection.sink import Sink
from steadytrain.report.first_screen import ENDINGS, StatusWord, Tone
from steadytrain.report.notebook_card import pill
from steadytrain.report.thinned_curves import spark
from steadytrain.storage.redaction import redact_text
from steadytrain.storage.segments import StepRecord

UPDATE_S = 0.5
"""Seconds between two updates: an update is a message to the browser, and takes some tenths of a millisecond."""

LOSSES_MAX = 4096
SYMPTOMS_SHOWN = 3
Clock = Callable[[], float]


class Display(Protocol):
    """What a notebook gives for an output that can be replaced."""

    def update(self, shown: Any) -> None: ...


class _Html:
    """HTML as a value, with a text for front ends that show none."""

    def __init__(self, html: str, text: str) -> None:
        self.html, self.text = html, text

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.text


def notebook_display(first: object) -> Display | None:
    """Shows ``first`` below the running cell. None if no notebook runs this process: a prompt would print it."""
    if not hasattr(shell(), "kernel"):
        return None
    from IPython.display import display

    handle: Display | None = display(first, display_id=True)
    return handle


@final
class LiveLine:
    """Follows a run in one line.

    Args:
        show: shows a value and returns the handle to replace it; None where there is no notebook.
    """

    def __init__(
        self, show: Callable[[object], Display | None] = notebook_display, clock: Clock = time.monotonic
    ) -> None:
        self._show, self._clock = show, clock
        self._handle: Display | None = None
        self._off = False
        self._shown_at = -UPDATE_S
        self._began: tuple[float, int] | None = None
        self._name = ""
        self._step = 0
        self._scalars: Mapping[str, float | None] = {}
        self._losses: deque[float] = deque(maxlen=LOSSES_MAX)
        self._symptoms: dict[str, Symptom] = {}
        self.steps_of: Callable[[], int] | None = None
        """Counts the steps of the run, also those that were not recorded because it rested."""

    def open(self, folder: Path, run: Mapping[str, Any]) -> None:
        self._name = str(run.get("name") or folder.name)
        self._off = bool(run.get("rank"))

    def step(self, stream: str, record: StepRecord, tensor_names: tuple[str, ...]) -> None:
        now = self._clock()
        self._began = self._began or (now, record.step)
        self._step, self._scalars = record.step, record.scalars
        loss = record.scalars.get("loss")
        if loss is not None:
            self._losses.append(loss)
        if now - self._shown_at >= UPDATE_S:
            self._shown_at = now
            self._update(None)

    def reading(self, stream: str, step: int, time: float, reading: Reading) -> None: ...

    def symptom(self, symptom: Symptom) -> None:
        if symptom.severity != "note":
            self._symptoms[symptom.name] = symptom

    def incident(self, path: Path, incident: Incident) -> None: ...

    def action(self, stream: str, action: Action) -> None: ...

    def close(self, ended: str, why: str = "", step: int = 0) -> None:
        if self._step:
            self._step = max(self._step, self.steps_of() if self.steps_of is not None else 0)
            self._update(ended)
        self.forget()

    def forget(self) -> None:
        self._off, self._handle = True, None

    def _update(self, ended: str | None) -> None:
        """Replace the line. A front end that is gone ends the line, and not the training."""
        if self._off:
            return
        shown = self._line(ended)
        try:
            if self._handle is not None:
                self._handle.update(shown)
            else:
                self._handle = self._show(shown)
                self._off = self._handle is None
        except own(Exception):
            self._off = True

    def _line(self, ended: str | None) -> _Html:
        word = StatusWord("training", "good") if ended is None else _ending(ended)
        gravest = sorted(self._symptoms.values(), key=lambda one: (-SEVERITIES.index(one.severity), one.first_step))
        wrong = [f"{one.name} at step {one.first_step:,}" for one in gravest[:SYMPTOMS_SHOWN]]
        if len(gravest) > SYMPTOMS_SHOWN:
            wrong.append(f"{len(gravest) - SYMPTOMS_SHOWN} more")
        state = ", ".join(wrong) or ("nothing wrong yet" if ended is None else "no symptom was seen")
        parts = [self._name, f"step {self._step:,}", *self._numbers()]
        curve = spark(np.array(self._losses), cells=24) if self._losses else ""
        said = " · ".join(parts)
        text = redact_text(f"{word.text}: {said} · {state}")
        tone: Tone = "unsure" if not wrong else "bad" if gravest[0].severity == "critical" else "changed"
        html = (
            f'<div style="font-variant-numeric:tabular-nums">{pill(word.text, word.tone, word.sign)} '
            f"{escape(redact_text(said))} <span>{curve}</span> {pill(redact_text(state), tone)}</div>"
        )
        return _Html(html, text)

    def _numbers(self) -> list[str]:
        found = []
        for name, label in (("loss", "loss"), ("gradient_norm", "gradient norm")):
            value = self._scalars.get(name)
            if value is not None:
                found.append(f"{label} {value:.4g}")
        if self._began is not None and self._clock() > self._began[0]:
            rate = (self._step - self._began[1]) / (self._clock() - self._began[0])
            if rate > 0:
                found.append(f"{rate:.3g} steps/s")
        return found


def _ending(ended: str) -> StatusWord:
    return StatusWord(ENDINGS.get(ended, ended), "good" if ended == "finished" else "bad")


@final
class Several:
    """Hands everything to several sinks, each whatever becomes of the others."""

    def __init__(self, *sinks: Sink) -> None:
        self._sinks = sinks

    def open(self, folder: Path, run: Mapping[str, Any]) -> None:
        self._each(lambda sink: sink.open(folder, run))

    def step(self, stream: str, record: StepRecord, tensor_names: tuple[str, ...]) -> None:
        self._each(lambda sink: sink.step(stream, record, tensor_names))

    def reading(self, stream: str, step: int, time: float, reading: Reading) -> None:
        self._each(lambda sink: sink.reading(stream, step, time, reading))

    def symptom(self, symptom: Symptom) -> None:
        self._each(lambda sink: sink.symptom(symptom))

    def incident(self, path: Path, incident: Incident) -> None:
        self._each(lambda sink: sink.incident(path, incident))

    def action(self, stream: str, action: Action) -> None:
        self._each(lambda sink: sink.action(stream, action))

    def close(self, ended: str, why: str = "", step: int = 0) -> None:
        self._each(lambda sink: sink.close(ended, why, step))

    def forget(self) -> None:
        self._each(lambda sink: sink.forget())

    def _each(self, hand: Callable[[Sink], None]) -> None:
        with contextlib.ExitStack() as stack:  # an error of one is raised after all of them were called
            for sink in reversed(self._sinks):
                stack.callback(hand, sink)
