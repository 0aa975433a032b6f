"""Calls the detectors on a window, adds what became of each symptom, and groups symptoms that belong together.

It detects nothing and names no cause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from steadytrain.core.json_values import JsonValue
from steadytrain.core.metric_names import direction
from steadytrain.core.model import SEVERITIES, FloatArray, Symptom, Window, worst
from steadytrain.detectors import Detector
from steadytrain.grouping.catalog import declared, detector_name
from steadytrain.grouping.courses import course_of
from steadytrain.grouping.harmless import explained_by_columns, is_benign, is_by_design
from steadytrain.grouping.stories import Story, tell
from steadytrain.statistics.medians import median
from steadytrain.statistics.reference import MAD_TO_SIGMA

Health = Literal["healthy", "watch", "sick", "unknown"]

LOSSES_MIN = 5
"""With fewer losses the health of a run is unknown."""

REFERENCE_LOSSES_MIN = 192
"""From this many losses on there is a baseline (128 steps, 64 behind) for spikes and drift."""

END_SHARE = 0.2
_WORDS = {"step_s": "step time", "gradient_norms": "norms of single gradients"}


@dataclass(frozen=True)
class Judgement(JsonValue, keys="health why symptoms stories looked not_run"):
    """The symptoms of a window, the detectors that ran, and the health of the run.

    ``symptoms`` have their course and story. ``looked`` names the detectors that could run, ``not_run`` the others with
    the reason. ``why`` gives the reason for ``health`` in one sentence.
    """

    symptoms: tuple[Symptom, ...]
    stories: tuple[Story, ...]
    health: Health
    why: str
    looked: tuple[str, ...]
    not_run: Mapping[str, str]


def judge(window: Window, detectors: Sequence[Detector]) -> Judgement:
    """Call every detector whose signals are in ``window``."""
    found: list[Symptom] = []
    asked = _Asked(window)
    for detector in detectors:
        if asked.can_look(detector):
            found += detector.check(window)
    stories = tell(_told_once([classified(window, symptom) for symptom in found]), window)
    symptoms = tuple(symptom for story in stories for symptom in story.symptoms)
    health, why = _health(window, symptoms, stories, asked)
    return Judgement(symptoms, stories, health, why, tuple(asked.looked), asked.not_run)


def _told_once(symptoms: Sequence[Symptom]) -> list[Symptom]:
    """``symptoms`` without those that another detector reports as the same event, no less grave, in the same steps."""
    dropped: set[int] = set()
    for at, one in enumerate(symptoms):
        for other_at, other in enumerate(symptoms):
            if other.name != declared(one.name).same_event_as or other.stream != one.stream:
                continue
            if one.first_step <= other.last_step and other.first_step <= one.last_step:
                graver = SEVERITIES.index(other.severity) > SEVERITIES.index(one.severity)
                dropped.add(at if graver else other_at)
    return [symptom for at, symptom in enumerate(symptoms) if at not in dropped]


class _Asked:
    """Records which detectors could run on a window, and on which signals."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._read: dict[str, None] = {}
        self._lacking: dict[str, None] = {}
        self.looked: list[str] = []
        self.not_run: dict[str, str] = {}

    def can_look(self, detector: Detector) -> bool:
        """Whether the window has any signal that ``detector`` needs."""
        there = [need for need in detector.needs if self._window.has(need)]
        self._read |= dict.fromkeys(map(_source, there))
        name = detector_name(type(detector))
        if there or not detector.needs:
            self.looked.append(name)
        else:
            self._lacking |= dict.fromkeys(map(_source, detector.needs))
            self.not_run[name] = f"there is no {' and no '.join(detector.needs)}"
        return name not in self.not_run

    @property
    def seen(self) -> str:
        """The basis of a silent result: how many detectors read what."""
        every, what = len(self.looked) + len(self.not_run), ", ".join(self._read)
        who = f"{len(self.looked)} of {every} detectors could look" if self.not_run else f"all {every} detectors looked"
        return f"{who} at {len(self._window):,} steps ({what}) and saw nothing above a note"

    @property
    def missing(self) -> str:
        return f"no {', '.join(name for name in self._lacking if name not in self._read) or 'columns that they read'}"


def _source(need: str) -> str:
    """A signal or table in words: ``tensors.update_norm`` belongs to the table ``tensors``."""
    return _WORDS.get(need) or need.partition(".")[0].replace("_", " ")


def classified(window: Window, symptom: Symptom) -> Symptom:
    """Add the course to ``symptom``. A known harmless symptom becomes a note whose message says why."""
    known = replace(symptom, course=course_of(window, symptom))
    reason = explained_by_columns(window, known)
    if not reason and symptom.severity != "note":
        reason = (is_by_design if symptom.severity == "critical" else is_benign)(window, known)
    if symptom.severity != "note" and reason:
        return replace(known, severity="note", message=f"{symptom.message} ({reason})")
    return known


def _health(window: Window, symptoms: Sequence[Symptom], stories: Sequence[Story], asked: _Asked) -> tuple[Health, str]:
    losses = window.series("loss")
    gravest = worst([symptom.severity for symptom in symptoms])
    if gravest in ("critical", "warning"):
        grave = [story for story in stories if story.severity == gravest]
        more = f" and {len(grave) - 1} more" if len(grave) > 1 else ""
        health: Health = "sick" if gravest == "critical" else "watch"
        names = " and ".join(dict.fromkeys(s.name for s in grave[0].symptoms if s.severity == gravest))
        return health, f"{names} from step {grave[0].first_step}{more}"
    if not asked.looked:
        return "unknown", f"no detector found what it needs ({asked.missing})"
    finite = losses.values[np.isfinite(losses.values)]
    measures = len(losses) and not window.facts.get("loss_may_rise")
    if not measures and (better := _bettered(window)):
        return "healthy", f"{better}; {asked.seen}"
    if not len(losses):
        return "unknown", f"there is no information about the loss; {asked.seen}"
    if len(finite) < LOSSES_MIN:
        are = "1 loss is" if len(finite) == 1 else f"{len(finite)} losses are"
        return "unknown", f"{are} too few to say anything; {LOSSES_MIN} are the least"
    open_note = next((symptom for symptom in symptoms if declared(symptom.name).leaves_open), None)
    if open_note is not None:
        return "unknown", open_note.message
    if len(finite) < REFERENCE_LOSSES_MIN:
        first, last, noise = _ends(finite)
        if not first - last > noise:
            return "unknown", f"{len(finite)} losses are too few for a reference, and they do not fall"
        return "healthy", f"the {len(finite)} losses fall from {first:.4g} to {last:.4g}; {asked.seen}"
    return "healthy", asked.seen


def _bettered(window: Window) -> str:
    """The first metric that improved by more than its noise, "" if none did: for a log without a loss of progress."""
    for name, series in window.metrics.items():
        finite = series.values[np.isfinite(series.values)]
        if direction(name) and len(finite) >= LOSSES_MIN:
            first, last, noise = _ends(finite)
            if direction(name) * (last - first) > noise:
                return f"{name} goes from {first:.4g} to {last:.4g}"
    return ""


def _ends(values: FloatArray) -> tuple[float, float, float]:
    """Medians of the first and last values, and the noise of one value, estimated from successive differences."""
    ends = max(1, int(END_SHARE * len(values)))
    steps = np.diff(values)
    noise = MAD_TO_SIGMA * median(np.abs(steps - median(steps))) / 2**0.5
    return median(values[:ends]), median(values[-ends:]), noise
