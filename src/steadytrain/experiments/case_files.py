"""Opens the case of a bundle or of a run: its symptom, its onset, its tape and snapshots. Torch-free."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from steadytrain.core.errors import UsageError
from steadytrain.core.incident import ZERO, Finding
from steadytrain.core.model import FIRST_STREAM, Symptom, Window
from steadytrain.experiments.bursts import burst_before
from steadytrain.experiments.case import SAME_STORY_STEPS, Case
from steadytrain.experiments.complaints import complaint
from steadytrain.experiments.device_facts import facts_of_devices
from steadytrain.experiments.near_start import starting_near
from steadytrain.experiments.rank_cases import of_ranks
from steadytrain.experiments.specs import Json
from steadytrain.experiments.trial_starts import EARLY_ONSET, START, begins_of
from steadytrain.grouping.catalog import declared
from steadytrain.statistics.reference import MAD_TO_SIGMA
from steadytrain.storage.bundle import is_bundle, open_bundle
from steadytrain.storage.run_folder import open_run
from steadytrain.storage.run_search import run_around
from steadytrain.storage.state_before import step_before
from steadytrain.storage.tape_files import Recording, find_recording, read_chunk

LEAP_STEPS, LEAP_STEPS_MIN, LEAP_NOISES, LEAP_SHARE_MIN = 64, 8, 8.0, 0.01
"""The loss of a step is a leap if it is this many robust standard deviations above the median of so many before it."""

NEAR_STEPS = 8
"""Steps before a leap in which a symptom of tensors dates it: a second moment lags 1 to 8 steps before (2304.13013)."""

SILENT = "a fix of a silent fault is judged by its rule: mend the script, run it, and `diagnose` checks the rule again"


def open_case(
    path: Path, *, facts: Mapping[str, Json] | None = None, onset: int | None = None, symptom: str | None = None
) -> Case:
    """The case of a bundle, or of a run with its tape.

    Args:
        path: a bundle or a run folder.
        facts: the result of a survey.
        onset: the first step of the symptom, if it should differ from the detected one.
        symptom: name of the symptom; by default the first of the most severe. One that no detector raised is taken as
            somebody's own observation (``complaints``).

    Raises:
        UsageError: not a bundle or run, damaged, without a symptom while no onset is given, or ``symptom`` is none.
    """
    recording = find_recording(path)
    source = _read(path, recording)
    window, symptoms, step = source.window, source.symptoms, source.step
    leading = _leading(
        [one for one in symptoms if one.stream == source.stream] or symptoms, symptom, own=is_bundle(path)
    )
    by_hand = symptom is not None and not is_bundle(path) and (leading is None or leading.severity == "note")
    if symptom is not None and (leading is None or leading.severity == "note"):
        others = [one for one in symptoms if one is not leading]
        leading = complaint(symptom, window, onset) if leading is None else replace(leading, severity="warning")
        symptoms = (leading, *others)
    if leading is None and onset is None and step is None:
        raise UsageError(f"{path}: no symptom was raised, so there is none to remove; {SILENT}")
    # What never went well is judged from the start of the script, and not from a tape of its last steps.
    from_start = by_hand and leading is not None and declared(leading.name).aim == "progress"
    began: Any = onset if onset is not None else 1 if from_start else step
    if onset is None and leading is not None and not from_start:
        began = _began(leading, symptoms, window, recording, source.finding)
    seen = step if step is not None else began
    seconds, recorded = window.series("step_s").values, _recorded(recording, seen)
    later = source.stream != FIRST_STREAM and not recorded.get("others")  # those that take turns are taped together
    # A run folder is replayed by the steps of its first optimizer; the bundle of another has a recording of its own.
    no_tape = from_start or (leading is not None and leading.stream != FIRST_STREAM and not is_bundle(path))
    case = Case(
        path=path,
        symptom=leading,
        symptoms=(*symptoms, *_later_acts(path, symptoms)),
        onset=min(began, seen),
        step=seen,
        window=window,
        environment=source.environment,
        begins=() if no_tape else _begins(recording, min(began, seen), later=later),
        taped=() if no_tape else recording.stretches(),
        step_s=float(np.median(seconds)) if len(seconds) else math.inf,
        facts={**facts_of_devices(path), **(facts or {})},
        finding=source.finding,
        of_note=source.of_note,
        guarded=bool(recorded.get("no_update")),
        of_loader=bool(recorded.get("fetches")),
        before=source.before,
        stream=source.stream,
        not_whole=recorded.get("left_out"),
        later=later,
    )
    return of_ranks(starting_near(case))


def _later_acts(path: Path, known: Sequence[Symptom]) -> list[Symptom]:
    """What the run of the bundle at ``path`` showed later that its script did: it is a sign of a cause, and no symptom
    that a trial could remove."""
    run = run_around(path) if is_bundle(path) else None
    seen, names = (run.symptoms if run is not None else ()), {one.name for one in known}
    return [one for one in seen if one.name not in names and one.severity != "note" and declared(one.name).is_act]


def _begins(recording: Recording, onset: int, *, later: bool) -> tuple[int, ...]:
    begins = begins_of(recording.starts(), recording.stretches(), onset)
    return tuple(begin for begin in begins if begin != START) if later else begins


def _recorded(recording: Recording, step: int) -> Mapping[str, Json]:
    """The step as the tape has it, empty if it has not."""
    chunk = recording.chunk_of(step)
    steps = read_chunk(chunk)["steps"] if chunk is not None else ()
    return next((one for one in steps if one["step"] == step), {})


@dataclass(frozen=True)
class _Source:
    """What a bundle or a run holds. ``step`` is that of the incident."""

    window: Window
    environment: Mapping[str, Any]
    symptoms: tuple[Symptom, ...]
    step: int | None = None
    finding: Finding | None = None
    of_note: bool = False
    before: int | None = None
    stream: str = FIRST_STREAM


def _read(path: Path, recording: Recording) -> _Source:
    if not is_bundle(path):
        run = open_run(path)
        return _Source(run.scalars(), run.description, tuple(run.symptoms))
    bundle = open_bundle(path)
    incident, symptoms = bundle.incident, tuple(bundle.incident.symptoms)
    if incident.is_note:
        symptoms = (replace(symptoms[0], severity="warning"), *symptoms[1:])
    before = step_before(path, incident, recording)
    return _Source(
        bundle.window,
        bundle.environment,
        symptoms,
        incident.step,
        bundle.finding,
        incident.is_note,
        before,
        incident.stream,
    )


def _began(
    leading: Symptom,
    symptoms: Sequence[Symptom],
    window: Window,
    recording: Recording,
    finding: Finding | None = None,
) -> int:
    """The onset of the leading symptom; of a value that is not finite, that of the burst before it.

    A division by a number of the script, such as 0 for a batch of one row, comes from no burst.
    """
    after = leap_after(leading, symptoms, window)
    if after is not None:
        return after
    leapt = _leaps(window, leading.first_step)
    near = [one for one in symptoms if not (leapt and _dates_vaguely(one, leading.first_step))]
    began = _onset(leading, near)
    found = finding.located if finding is not None else None
    of_number = found is not None and any(one.text in ZERO for one in found.inputs)
    burst = burst_before(window, began) if declared(leading.name).aim == "finite" and not of_number else None
    return burst if burst is not None and any(start < burst for start in recording.starts()) else began


def _onset(leading: Symptom, symptoms: Sequence[Symptom]) -> int:
    """The first step of the symptom, or of an earlier one nearby that it may have grown from.

    An act, such as a jump of the rate, is known to the step. Tensors and activations are measured every few steps only:
    what they date before an act belongs to it.
    """
    if declared(leading.name).aim == "finite" or declared(leading.name).is_act:
        return leading.first_step
    near = range(leading.first_step - SAME_STORY_STEPS, leading.first_step + 1)
    own = [one for one in symptoms if one.stream == leading.stream]  # others count the steps of another optimizer
    grown = [one for one in own if one.first_step in near and one.severity != "note"]
    sampled = _is_sampled(leading)
    until = leading.last_step if sampled else leading.first_step
    acts = [
        one.first_step
        for one in own
        if declared(one.name).is_act and one.severity != "note" and near.start <= one.first_step <= until
    ]
    exact = [one.first_step for one in grown if not _is_sampled(one)]
    if acts and min(acts) <= min(exact, default=min(acts)):
        return min(acts)
    return min((one.first_step for one in grown), default=leading.first_step)


def leap_after(leading: Symptom, symptoms: Sequence[Symptom], window: Window) -> int | None:
    """The leap of the loss that follows a leading symptom of tensors, too late to come from what these showed."""
    if not _is_sampled(leading) or leading.first_step <= EARLY_ONSET:
        return None
    near = range(leading.first_step + NEAR_STEPS + 1, leading.last_step + 2 * NEAR_STEPS + 1)
    steps = [one.first_step for one in symptoms if one.stream == leading.stream and not _is_sampled(one)]
    return min((step for step in steps if step in near and _leaps(window, step, 2 * NEAR_STEPS)), default=None)


def _leaps(window: Window, step: int, steps: int = LEAP_STEPS) -> bool:
    """Whether the loss of ``step`` is far above those before: what brought it came right before."""
    series = window.series("loss")
    before = series.values[(series.steps < step) & np.isfinite(series.values)][-steps:]
    here = series.values[series.steps == step]
    if len(before) < LEAP_STEPS_MIN or not len(here):
        return False
    level = float(np.median(before))
    noise = MAD_TO_SIGMA * float(np.median(np.abs(before - level)))
    return bool(here[0] > level + LEAP_NOISES * max(noise, LEAP_SHARE_MIN * abs(level)))


def _dates_vaguely(symptom: Symptom, step: int) -> bool:
    """Whether a symptom of tensors goes on over ``step`` and begins well before, after the last reading without it. Not
    in the first steps of a script, where each is measured."""
    return _is_sampled(symptom) and EARLY_ONSET < symptom.first_step < step - NEAR_STEPS and symptom.last_step >= step


def _is_sampled(symptom: Symptom) -> bool:
    """Whether a symptom is about tensors and activations alone, which are measured every few steps."""
    return bool(symptom.signals) and all(signal.startswith(("tensors.", "modules.")) for signal in symptom.signals)


def _leading(symptoms: Sequence[Symptom], wanted: str | None, *, own: bool) -> Symptom | None:
    if wanted is None:
        return leading_symptom(symptoms, own=symptoms[0] if own and symptoms else None)
    return next((found for found in symptoms if found.name == wanted), None)


def leading_symptom(symptoms: Sequence[Symptom], *, own: Symptom | None = None) -> Symptom | None:
    """The gravest symptom that began first; non-finite values come before all others. If a run stopped improving after
    a burst, or an act such as an incomplete resume brought one, the burst is the symptom to remove.

    Args:
        own: the symptom that the incident was made for. It leads all that are no graver.
    """
    grades = {"critical": 0, "warning": 1, "note": 2}

    def place(one: Symptom) -> tuple[bool, int, bool, int]:
        return declared(one.name).aim != "finite", grades[one.severity], one is not own, one.first_step

    order = sorted(symptoms, key=place)
    first = order[0] if order else None
    if first is None or declared(first.name).aim != "progress":
        return first
    after = SAME_STORY_STEPS if declared(first.name).is_act else 0  # what an act did is what can be measured
    near = range(first.first_step - SAME_STORY_STEPS, first.first_step + after)
    bursts = (one for one in order if declared(one.name).bursts and one.severity != "note" and one.first_step in near)
    return next(bursts, first)
