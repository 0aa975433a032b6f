"""Symptoms and their stories as shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from steadytrain.core.model import FIRST_STREAM, Symptom, Window
from steadytrain.grouping import classified
from steadytrain.grouping.stories import Story, tell
from steadytrain.report.incidents_shown import TENSORS_MAX
from steadytrain.report.report_values import SymptomRow
from steadytrain.report.thinned_curves import Curve
from steadytrain.report.told_once import told_once
from steadytrain.report.wording import clean, enumerated, step_range
from steadytrain.statistics.rank_rows import ranks_named
from steadytrain.storage.run_folder import Run

SYMPTOMS_MAX = 100
STORIES_MAX = 5
CODE_MAX = 160
_NONE: Mapping[str, str] = MappingProxyType({})


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


def symptom_rows(seen: Sequence[tuple[Symptom, str]], names: Mapping[str, str] = _NONE) -> tuple[SymptomRow, ...]:
    """The symptoms of a run, each with the rank that it is of, "" for the run's only one.

    Args:
        names: how the streams are called, as :func:`stream_names` gives them.
    """
    shown = once_for_ranks(told_once(seen))[:SYMPTOMS_MAX]
    stories = _story_labels([symptom for symptom, _ in seen])
    return tuple(
        replace(symptom_row(symptom, origin, names=names), story=stories.get(symptom.story, ""))
        for symptom, origin in shown
    )


def once_for_ranks(seen: Sequence[tuple[Symptom, str]]) -> list[tuple[Symptom, str]]:
    """``seen`` with one entry for what several ranks saw alike, where the first of them saw it. Pure."""
    origins: dict[tuple[Any, ...], list[str]] = {}
    for symptom, origin in seen:
        origins.setdefault(_alike(symptom), []).append(origin)
    found = []
    for symptom, origin in seen:
        of_all = origins.pop(_alike(symptom), [])
        several = len(set(of_all)) > 1
        if several:
            found.append((symptom, ranks_named(sorted(int(one.removeprefix("rank ") or 0) for one in of_all))))
        else:
            found += [(symptom, origin)] * len(of_all)
    return found


def _alike(symptom: Symptom) -> tuple[Any, ...]:
    return (symptom.name, symptom.stream, symptom.first_step, symptom.last_step, symptom.severity, symptom.message)


def _story_labels(seen: Sequence[Symptom]) -> dict[int | None, str]:
    """What each story is called, counted from 1 over those that are shown with an alarm; without one over all."""
    alarms = [symptom for symptom in seen if symptom.severity != "note"]
    numbers = sorted({one.story for one in alarms or seen if one.story is not None}) if len(seen) > 1 else []
    return {number: f"story {place}" for place, number in enumerate(numbers, start=1)}


def symptom_row(symptom: Symptom, origin: str = "", *, names: Mapping[str, str] = _NONE) -> SymptomRow:
    """One symptom, outside of any story."""
    at = symptom.at
    stream = names.get(symptom.stream, symptom.stream if symptom.stream != FIRST_STREAM else "")
    return SymptomRow(
        name=clean(symptom.name),
        severity=symptom.severity,
        first_step=symptom.first_step,
        last_step=symptom.last_step,
        steps=step_range(symptom),
        origin=clean(origin or stream),
        message=clean(symptom.message),
        tensors=enumerated([clean(name) for name in symptom.tensors], TENSORS_MAX),
        line=clean(at.place) if at is not None else "",
        code=clean(at.code, length_max=CODE_MAX) if at is not None else "",
        stream=clean(stream),
    )


def bands_of(curve: Curve, symptoms: Sequence[SymptomRow]) -> list[SymptomRow]:
    """The symptoms that are drawn on ``curve``: those of the same optimizer."""
    return [one for one in symptoms if not curve.stream or one.stream == curve.stream]


def stream_names(run: Run) -> dict[str, str]:
    """What the streams of a run with several are called: by the script's variables, unless two have the same name."""
    streams = run.streams()
    if len(streams) < 2:
        return {}
    given = run.facts.get("stream_names")
    given = given if isinstance(given, dict) else {}
    called = [str(given.get(stream) or stream) for stream in streams]
    return {
        stream: clean(name if called.count(name) == 1 else stream) for stream, name in zip(streams, called, strict=True)
    }
