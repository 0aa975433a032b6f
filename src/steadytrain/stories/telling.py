"""Which symptoms are one story, in which order they came, and the story in words.

Symptoms belong together where one begins before the other is over, or within ``MARGIN_STEPS`` logged steps after it. A
condition that stands for most of a run (a frozen parameter, dead units) joins the story of its onset and does not draw
everything after it in. A note joins a story and never holds one open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from steadytrain.model import SEVERITIES, Severity, Symptom, Window, worst
from steadytrain.reference import stride_of
from steadytrain.stories.courses import TOLD

MARGIN_STEPS = 64
STANDING_STEPS = 512
"""A symptom that lasts longer holds its story open for this long only."""

TOLD_MAX = 4

_ORDER = (
    ("learning_rate", 0),
    ("tensors.update", 0),
    ("tensors.unchanged", 0),
    ("gradient", 1),
    ("tensors.gradient", 1),
    ("loss_scale", 1),
    ("scaler", 1),
    ("modules", 2),
    ("tensors", 2),
    ("loss", 3),
)
"""What moves what: an update, then gradients, then activations, then the loss. For symptoms of one step."""


@dataclass(frozen=True)
class Story:
    """Symptoms that belong together, in the order in which they came."""

    number: int
    severity: Severity
    first_step: int
    last_step: int
    symptoms: tuple[Symptom, ...]
    text: str

    @property
    def course_line(self) -> str:
        """The names in order and what became of it, for readers who have the messages; "" where that says nothing."""
        names = list(dict.fromkeys(symptom.name for symptom in self.symptoms))
        course = _gravest(self.symptoms).course
        if len(names) < 2 and course is None:
            return ""
        single = self.first_step == self.last_step
        where = f"Step {self.first_step}" if single else f"Steps {self.first_step} to {self.last_step}"
        return f"{where}: {', then '.join(names)}{f'; {TOLD[course]}' if course is not None else ''}."

    def to_json(self) -> dict[str, Any]:
        return {
            "story": self.number,
            "severity": self.severity,
            "first_step": self.first_step,
            "last_step": self.last_step,
            "symptoms": [symptom.name for symptom in self.symptoms],
            "text": self.text,
        }


def tell(symptoms: Sequence[Symptom], window: Window) -> tuple[Story, ...]:
    """The stories of one stream in the order of their onset, numbered from 1."""
    stride = stride_of(window.steps)
    groups: list[list[Symptom]] = []
    open_until = -1
    for symptom in sorted(symptoms, key=_by_time):
        if not groups or symptom.first_step > open_until + MARGIN_STEPS * stride:
            groups.append([])
            open_until = -1
        groups[-1].append(symptom)
        held = symptom.first_step if symptom.severity == "note" else symptom.last_step
        open_until = max(open_until, min(held, symptom.first_step + STANDING_STEPS * stride))
    return tuple(_story(number, group) for number, group in enumerate(groups, start=1))


def _story(number: int, group: Sequence[Symptom]) -> Story:
    symptoms = tuple(replace(symptom, story=number) for symptom in group)
    severity = worst([symptom.severity for symptom in symptoms])
    assert severity is not None
    return Story(
        number=number,
        severity=severity,
        first_step=min(symptom.first_step for symptom in symptoms),
        last_step=max(symptom.last_step for symptom in symptoms),
        symptoms=symptoms,
        text=_text(symptoms),
    )


def _text(symptoms: Sequence[Symptom]) -> str:
    """Who moved first, what followed, and what became of the gravest."""
    told = list({symptom.name: symptom for symptom in reversed(symptoms)}.values())[::-1]
    parts = [f"{told[0].message[:1].upper()}{told[0].message[1:]}"]
    parts += [f"then {symptom.message}" for symptom in told[1:TOLD_MAX]]
    text = "; ".join(parts) + "."
    if len(told) > TOLD_MAX:
        text += f" {len(told) - TOLD_MAX} more symptoms belong to it."
    gravest = _gravest(symptoms)
    if gravest.course is not None and TOLD[gravest.course] not in text:
        text += f" {TOLD[gravest.course][:1].upper()}{TOLD[gravest.course][1:]}."
    return text


def _gravest(symptoms: Sequence[Symptom]) -> Symptom:
    """Of several equally grave ones the first that has a course."""
    return max(symptoms, key=lambda symptom: (SEVERITIES.index(symptom.severity), symptom.course is not None))


def _by_time(symptom: Symptom) -> tuple[int, int, str]:
    rank = min((rank for name in symptom.signals for start, rank in _ORDER if name.startswith(start)), default=3)
    return symptom.first_step, rank, symptom.name
