"""Finds the onset of an incident: replays from earlier and earlier snapshots until the first deviation is covered.

Torch-free: the script runs in launched processes.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.core.incident import Incident
from steadytrain.core.json_values import number_to_json
from steadytrain.core.model import Symptom
from steadytrain.onset.departures import (
    AFTER_STEPS,
    REFERENCE_STEPS,
    REFERENCE_STEPS_MIN,
    Course,
    Departure,
    departures,
    reaches_back,
)
from steadytrain.onset.measured_replay import MEASURED_FILE, MODULE, read_course
from steadytrain.onset.measures import QUANTITIES
from steadytrain.replay.launcher import CannotReplayError, Plan, launch, plan
from steadytrain.replay.moved_files import Moved
from steadytrain.replay.verdict import CANNOT_TELL_STATUS, Replayed
from steadytrain.storage.bundle import is_bundle, open_bundle
from steadytrain.storage.tape_files import find_recording

SCHEMA = "steadytrain.onset/1"
LAUNCHES_MAX = 4
STEPS_MAX = 2048
"""Bound on the measured steps in total."""

EVIDENCE_MAX = 12
RATE_RATIO = 1.5
RATE_STEPS = 2
NAMED_STATUS, NOTHING_STATUS = 0, 1
NOTHING = "nothing deviated before the symptom"

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Onset:
    """The deviations that lead to the symptom, earliest first."""

    source: Path
    symptom: Symptom | None
    symptom_step: int
    course: Course
    found: tuple[Departure, ...]
    rates: tuple[tuple[int, float], ...]
    different_at: int | None
    notes: tuple[str, ...]

    @property
    def status(self) -> int:
        """0 if a departure is named, 1 if not."""
        return NAMED_STATUS if self.found else NOTHING_STATUS


def find_onset(source: Path, *, until: int | None, moved: Moved, wait_s: float, lead_s: float, tell: Tell) -> Onset:
    """Searches deviations before the incident's symptom, or before step ``until``.

    Raises:
        UsageError: there is nothing to replay from, or the script is gone.
        CannotReplayError: the launched script did not reach its steps, or the replay differs from the recorded run.
    """
    recording = find_recording(source)
    incident = open_bundle(source).incident if is_bundle(source) else None
    last = incident.step if incident is not None else recording.last_step
    symptom_step = until or (incident.onset_step if incident is not None else last) or 0
    end = min(symptom_step + AFTER_STEPS, last) if last is not None else symptom_step
    asked = plan(source, first=None, until=max(end, symptom_step), moved=moved, wait_s=wait_s, lead_s=lead_s)
    if asked.group is not None:
        raise UsageError(
            f"{source}: it has {asked.group.world} ranks; only replay, trial and diagnose launch all of them"
        )
    if asked.first is None:
        raise UsageError(f"{source}: it has no tape of earlier steps; nothing to measure")
    begins = _begins(recording.starts(), symptom_step, end=asked.until, reaches=recording.reaches)
    search = _search(asked, begins, symptom_step, once=incident is None, tell=tell)
    course, found, different_at, notes = search.course, search.found, search.different_at, search.notes
    assert course is not None
    if different_at is not None and (not found or different_at <= found[0].step):
        raise CannotReplayError(
            f"the replay differs from the recorded run from step {different_at} on (`steadytrain replay` says why), "
            "so its measurements do not describe the run"
        )
    if not reaches_back(found, course):
        notes.append(f"measuring begins with step {int(course.steps[0])}, and the deviation may have begun earlier")
    elif not found and symptom_step - int(course.steps[0]) < REFERENCE_STEPS_MIN:
        notes.append(f"only {max(0, symptom_step - int(course.steps[0]))} steps before the symptom could be measured")
    notes += _made_before_model(incident, found)
    symptom = incident.symptoms[0] if incident is not None and incident.symptoms else None
    return Onset(source, symptom, symptom_step, course, found, tuple(search.rates), different_at, tuple(notes))


def _made_before_model(incident: Incident | None, found: Sequence[Departure]) -> list[str]:
    """What made the values of a batch that the model got bad, or that nobody knows yet."""
    if incident is None or not found or found[0].phase != "batch" or math.isfinite(found[0].value):
        return []
    made = incident.finding.located
    if made is not None and made.phase == "preprocessing":
        return [f"the data was finite: {made.operation} at {made.file}:{made.line} made {WORDS[made.produced]} of it"]
    half = incident.finding.is_half_traced(incident.samples)
    return ["the script may have made it before it called the model: `steadytrain locate` looks for it"] if half else []


WORDS = {"nan": "NaN", "inf": "Inf"}


@dataclass
class _MeasuredSoFar:
    """The state of the search. Each replay starts earlier than the one before."""

    course: Course | None = None
    found: tuple[Departure, ...] = ()
    rates: list[tuple[int, float]] = field(default_factory=list)
    different_at: int | None = None
    notes: list[str] = field(default_factory=list)

    def add(self, course: Course, replayed: Replayed, rates: list[tuple[int, float]]) -> Course:
        """Prepends earlier steps. Returns everything measured so far."""
        self.course = course if self.course is None else course.joined(self.course)
        self.rates = rates + self.rates
        if replayed.first_difference is not None:
            step = replayed.first_difference.step
            self.different_at = min(step, self.different_at or step)
        self.notes += [note for note in replayed.notes if note not in self.notes]
        return self.course


def _search(asked: Plan, begins: Sequence[int], symptom_step: int, *, once: bool, tell: Tell) -> _MeasuredSoFar:
    """Measures earlier and earlier steps until the deviations begin within the measured range.

    ``once``: stop if the first replay finds nothing.
    """
    search, upto = _MeasuredSoFar(), asked.until
    for number, first in enumerate(begins[:LAUNCHES_MAX]):
        if search.course is not None and len(search.course.steps) + upto - first > STEPS_MAX:
            search.notes.append(f"steps before {upto + 1} were not measured: more than {STEPS_MAX} in all")
            break
        tell(f"measuring steps {first} to {upto}")
        course = search.add(*_measured(asked, first, upto))
        search.found = departures(course, symptom_step)
        if reaches_back(search.found, course) if search.found else once and number == 0:
            break
        upto = first - 1
    return search


def _begins(starts: Sequence[int], symptom_step: int, *, end: int, reaches: Callable[[int], int]) -> list[int]:
    """The first steps to try, in order: enough reference before the symptom, then earlier and earlier."""
    able = [start for start in starts if start <= end and reaches(start) >= end]
    before = [start for start in able if start <= symptom_step - REFERENCE_STEPS]
    return before[::-1] or able[:1]


def _measured(asked: Plan, first: int, until: int) -> tuple[Course, Replayed, list[tuple[int, float]]]:
    with tempfile.TemporaryDirectory(prefix="steadytrain-onset-") as scratch:
        result = Path(scratch) / "result.json"
        places = [str(asked.source.absolute()), str(result), str(asked.moved)]
        launch(asked, ["-m", MODULE, *places, str(first), str(until), str(asked.lead_s)], result)
        document = json.loads(result.read_text(encoding="utf-8"))
        if "cannot" in document:
            raise CannotReplayError(str(document["cannot"]))
        rates = [(int(step), float(rate)) for step, rate in document["rates"]]
        return read_course(result.parent / MEASURED_FILE), Replayed.from_json(document["replayed"]), rates


def document_of(onset: Onset) -> dict[str, Any]:
    first = onset.found[0] if onset.found else None
    return {
        "schema": SCHEMA,
        "incident": str(onset.source),
        "symptom": onset.symptom.name if onset.symptom is not None else None,
        "symptom_step": onset.symptom_step,
        "from_step": int(onset.course.steps[0]),
        "until_step": int(onset.course.steps[-1]),
        "measured": len(onset.course.keys),
        "found": first is not None,
        "step": first.step if first is not None else None,
        "phase": first.phase if first is not None else None,
        "first": _departure(first) if first is not None else None,
        "evidence": [_departure(one) for one in _evidence(onset.found)],
        "settings": _settings_changed(onset),
        "why": _why(onset),
        "notes": list(onset.notes),
    }


def lines(document: Mapping[str, Any]) -> list[str]:
    """Formats the document for the terminal."""
    symptom = f"{document['symptom']} at step {document['symptom_step']}" if document["symptom"] else "no symptom"
    told = [f"onset, steps {document['from_step']} to {document['until_step']} measured ({symptom})"]
    told.append(_line("first" if document["found"] else "nothing", document["why"]))
    for number, one in enumerate(document["evidence"]):
        told.append(_line("" if number else "evidence", f"step {one['step']}, {one['phase']}: {one['text']}"))
    told += [_line("" if number else "changed", text) for number, text in enumerate(document["settings"])]
    return told + [_line("note", note) for note in document["notes"]]


def _line(name: str, text: str) -> str:
    return f"  {name:<20} {text}"


def _evidence(found: Sequence[Departure]) -> list[Departure]:
    """For each quantity, the clearest of its first deviations, in order."""
    firsts: dict[str, Departure] = {}
    for one in found:
        known = firsts.get(one.key.quantity)
        if known is None or (one.step == known.step and one.weight > known.weight):
            firsts[one.key.quantity] = one
    return sorted(firsts.values(), key=found.index)[:EVIDENCE_MAX]


def _departure(one: Departure) -> dict[str, Any]:
    return {
        "step": one.step,
        "phase": one.phase,
        "quantity": one.key.quantity,
        "tensor": one.key.tensor,
        "value": number_to_json(one.value),
        "usual": number_to_json(one.usual),
        "z": number_to_json(round(one.z, 1)),
        "limit": one.limit,
        "passed_limit_at": one.passed,
        "text": _text(one),
    }


def _text(one: Departure) -> str:
    quantity = QUANTITIES[one.key.quantity]
    of = f" {one.key.tensor}" if one.key.tensor.startswith("of ") else f" of {one.key.tensor}" if one.key.tensor else ""
    if one.slow:
        if one.passed == one.step and not one.cut:
            return f"{quantity.words}{of} passed {one.limit:.4g}: it was {one.value:.4g}, {one.usual:.4g} before"
        where = "was already beyond its usual range" if one.cut else f"began to grow from {one.usual:.4g}"
        return f"{quantity.words}{of} {where} and passed {one.limit:.4g} at step {one.passed}"
    if not math.isfinite(one.value):
        return f"{quantity.words}{of} was not finite, {one.usual:.4g} before"
    return f"{quantity.words}{of} was {one.value:.4g}, {one.usual:.4g} before ({abs(one.z):.0f} robust deviations)"


def _why(onset: Onset) -> str:
    if not onset.found:
        return NOTHING if onset.symptom is not None else "nothing deviated in these steps"
    first = onset.found[0]
    before = onset.symptom_step - first.step
    when = (
        f"{before} steps before the symptom"
        if before > 1
        else "the step before the symptom"
        if before == 1
        else ("the symptom's own step" if before == 0 else f"{-before} steps after the detector's onset")
    )
    return f"step {first.step} ({when}), {first.phase}: {_text(first)}"


def _settings_changed(onset: Onset) -> list[str]:
    """Jumps of the learning rate near the first deviation. The rate is a setting, not a measurement."""
    if not onset.found:
        return []
    step = onset.found[0].step
    changed = []
    for (before, old), (now, new) in zip(onset.rates, onset.rates[1:], strict=False):
        near = abs(now - step) <= RATE_STEPS and now == before + 1
        if near and min(old, new) > 0 and max(old, new) / min(old, new) >= RATE_RATIO:
            changed.append(f"the learning rate went from {old:.4g} to {new:.4g} at step {now}")
    return changed


__all__ = ["CANNOT_TELL_STATUS", "CannotReplayError", "Onset", "document_of", "find_onset", "lines"]
