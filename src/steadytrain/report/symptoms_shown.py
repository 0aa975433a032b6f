"""Symptoms and their stories as shown."""

from __future__ import annotations

from collections.abc import Sequence

from steadytrain.core.model import Symptom, Window
from steadytrain.grouping import classified
from steadytrain.grouping.stories import Story, tell
from steadytrain.report.incidents_shown import TENSORS_MAX
from steadytrain.report.report_values import SymptomRow
from steadytrain.report.told_once import told_once
from steadytrain.report.wording import clean, enumerated, step_range

SYMPTOMS_MAX = 100
STORIES_MAX = 5
CODE_MAX = 160


def stories_of(window: Window | None, symptoms: Sequence[Symptom]) -> tuple[Story, ...]:
    """The stories of the window's stream by onset, with the course of each symptom."""
    if window is None:
        return ()
    own = [symptom for symptom in symptoms if symptom.stream == window.stream]
    return tell([classified(window, symptom) for symptom in own], window)


def story_lines(stories: Sequence[Story]) -> tuple[str, ...]:
    """One line per story, with the course of its symptoms."""
    lines = [clean(story.course_line) for story in stories if story.severity != "note" and story.course_line]
    more = (f"{len(lines) - STORIES_MAX} more stories are not shown here.",) if len(lines) > STORIES_MAX else ()
    return (*lines[:STORIES_MAX], *more)


def symptom_rows(seen: Sequence[tuple[Symptom, str]]) -> tuple[SymptomRow, ...]:
    """The symptoms of a run, each with the rank that it is of, "" for the run's only one."""
    return tuple(symptom_row(symptom, origin, among=len(seen)) for symptom, origin in told_once(seen)[:SYMPTOMS_MAX])


def symptom_row(symptom: Symptom, origin: str = "", *, among: int = 1) -> SymptomRow:
    """One symptom of ``among`` that are shown together."""
    at = symptom.at
    return SymptomRow(
        name=clean(symptom.name),
        severity=symptom.severity,
        first_step=symptom.first_step,
        last_step=symptom.last_step,
        steps=step_range(symptom),
        origin=clean(origin or (symptom.stream if symptom.stream != "main" else "")),
        message=clean(symptom.message),
        tensors=enumerated([clean(name) for name in symptom.tensors], TENSORS_MAX),
        story=f"story {symptom.story}" if symptom.story is not None and among > 1 else "",
        line=clean(at.place) if at is not None else "",
        code=clean(at.code, length_max=CODE_MAX) if at is not None else "",
    )
