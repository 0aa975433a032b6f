"""What a window shows, told as stories: every detector is asked once, and what belongs together is told together.

| file | what it does |
|---|---|
| ``courses`` | what became of a symptom in the steps after its onset |
| ``telling`` | which symptoms are one story, who moved first, and the story in words |

Detectors do not know each other; here is the only place that looks at several symptoms at once. Not here: causes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from steadytrain.catalog import detector_name
from steadytrain.model import Symptom, Window, worst
from steadytrain.stories.courses import course_of, is_benign
from steadytrain.stories.telling import Story, tell
from steadytrain.symptoms import Detector

Health = Literal["healthy", "watch", "sick", "unknown"]

LOSSES_MIN = 20
"""With fewer losses nothing can be said of a run."""

REFERENCE_LOSSES_MIN = 192
"""From here on there is a reference (128 steps, 64 behind) that spikes and drift are counted from."""

END_SHARE = 0.2


@dataclass(frozen=True)
class Judgement:
    """What was seen, by whom, and what it comes to.

    ``symptoms`` have their course and story. ``looked`` names the detectors that could look, ``not_run`` the others
    with the reason. ``why`` is the reason for ``health`` in a sentence.
    """

    symptoms: tuple[Symptom, ...]
    stories: tuple[Story, ...]
    health: Health
    why: str
    looked: tuple[str, ...]
    not_run: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        return {
            "health": self.health,
            "why": self.why,
            "symptoms": [symptom.to_json() for symptom in self.symptoms],
            "stories": [story.to_json() for story in self.stories],
            "looked": list(self.looked),
            "not_run": dict(self.not_run),
        }


def judge(window: Window, detectors: Sequence[Detector]) -> Judgement:
    """Ask every detector that finds what it needs in ``window``."""
    found: list[Symptom] = []
    looked: list[str] = []
    not_run: dict[str, str] = {}
    for detector in detectors:
        name = detector_name(type(detector))
        if not any(window.has(need) for need in detector.needs):
            not_run[name] = f"there is no {' and no '.join(detector.needs)}"
            continue
        found += detector.check(window)
        looked.append(name)
    stories = tell([classified(window, symptom) for symptom in found], window)
    symptoms = tuple(symptom for story in stories for symptom in story.symptoms)
    health, why = _health(window, symptoms, stories, len(looked))
    return Judgement(symptoms, stories, health, why, tuple(looked), not_run)


def classified(window: Window, symptom: Symptom) -> Symptom:
    """``symptom`` with what became of it. One that is known to do no harm is a note, and its message says why."""
    course = course_of(window, symptom)
    if course is None:
        return symptom
    if symptom.severity == "warning" and (reason := is_benign(window, symptom, course)):
        return replace(symptom, severity="note", course=course, message=f"{symptom.message} ({reason})")
    return replace(symptom, course=course)


def _health(window: Window, symptoms: Sequence[Symptom], stories: Sequence[Story], looked: int) -> tuple[Health, str]:
    losses = window.series("loss")
    gravest = worst([symptom.severity for symptom in symptoms])
    if gravest in ("critical", "warning"):
        grave = [story for story in stories if story.severity == gravest]
        more = f" and {len(grave) - 1} more" if len(grave) > 1 else ""
        health: Health = "sick" if gravest == "critical" else "watch"
        names = " and ".join(dict.fromkeys(s.name for s in grave[0].symptoms if s.severity == gravest))
        return health, f"{names} from step {grave[0].first_step}{more}"
    if not looked:
        return "unknown", "no detector found what it needs"
    if len(losses) < LOSSES_MIN:
        return "unknown", f"{len(losses)} losses are too few to say anything; {LOSSES_MIN} are the least"
    if len(losses) < REFERENCE_LOSSES_MIN:
        if not _falls(losses.values):
            return "unknown", f"{len(losses)} losses, too few for a reference, and they do not fall"
        return "healthy", f"the loss falls, and {looked} detectors saw nothing; {len(losses)} losses are few"
    return "healthy", f"{looked} detectors looked at {len(window):,} steps and saw nothing above a note"


def _falls(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> bool:
    """Whether the last losses lie below the first ones by their medians."""
    finite = values[np.isfinite(values)]
    ends = max(1, int(END_SHARE * len(finite)))
    return len(finite) > 1 and float(np.median(finite[-ends:])) < float(np.median(finite[:ends]))
