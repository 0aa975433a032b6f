"""When a symptom becomes an incident: the run is frozen while the tape of the steps that led to it is still there.

A critical symptom is frozen at once. A warning has to last ``SETTLED_STEPS`` first: by then it is known what became of
it, and one that did no harm is a note (``grouping``). When the run is over nothing is waited for. Of symptoms that are
one story only the gravest is frozen, of each kind one, and a few in all.

A note is frozen as a warning is, where progress was lost in it, if only for a step, and no plan explains that. Its
incident is a note and no alarm. Of each kind the first is frozen; those that follow are counted in it.

The training thread decides and copies the window; a thread of its own writes, so that training waits for no disk.
Not here: losses and gradients that are not finite. Those are the gate's, which freezes the step itself.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from steadytrain.capture.hooks.fail_open import Guard, Tell
from steadytrain.capture.incident import freeze
from steadytrain.capture.incident.incident import process_facts, script_facts
from steadytrain.capture.settings import utc_now
from steadytrain.capture.step import ranks
from steadytrain.capture.step.observers import StepObserver
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.step.recording import Recorder
from steadytrain.core.incident import Action, Finding, Incident
from steadytrain.core.model import SEVERITIES, Severity, Symptom, Window
from steadytrain.grouping.catalog import declared, is_nonfinite
from steadytrain.grouping.harmless import is_planned
from steadytrain.grouping.stories import tell
from steadytrain.statistics.benign_changes import planned_change
from steadytrain.statistics.medians import median
from steadytrain.storage.staged_bundle import free_place, staged, update_incident

SETTLED_STEPS = 64
"""As many as a story waits for what belongs to it (``stories.telling.MARGIN_STEPS``)."""

INCIDENTS_MAX: dict[Severity, int] = {"critical": 3, "warning": 3, "note": 3}
"""Bundles of a run. They share the disk of the recording while it is there, and keep their part of it afterwards."""

WRITE_WAIT_S = 30.0
"""What the end of a run waits for its bundles to be written."""


WHY = "not searched: the symptom is one of finite values (`steadytrain onset` finds the first that left its course)"
STATE = "in the snapshots (replay/snapshots)"
BATCHES = "in the recording (replay/tape)"

LOST_SHARE = 0.2
"""Of the progress from the start of the run to the level before the onset: a note in which the loss rose by so much is
frozen. Planted faults that lost more than a fifth are counted as harmful (``make bench-early``)."""

LEVEL_ROWS = 5
"""The loss at the start, and the level before an onset, are medians of so many."""

MORE_NOTES, LAST_NOTE_STEP = "more_notes", "last_note_step"
"""Among the numbers of a frozen note: how many of its kind followed, and the first step of the last one."""

BY_HAND = "kept-by-hand"

Key = tuple[str, str, int]


@dataclass
class _Job:
    """A bundle that is being written."""

    path: Path
    incident: Incident
    thread: threading.Thread | None = None
    errors: list[Exception] = field(default_factory=list)


class SymptomIncidents:
    """All but the writing is the training thread's. ``frozen`` is called with each bundle that is whole."""

    def __init__(
        self, recorder: Recorder, guard: Guard, observer: StepObserver, tell: Tell, frozen: Callable[[Path], None]
    ) -> None:
        self._recorder = recorder
        self._guard = guard
        self._observer = observer
        self._tell = tell
        self._tell_of = frozen
        self._raised: dict[Key, int] = {}
        self._frozen: dict[Key, Severity] = {}
        self._made: list[Severity] = []
        self._first_notes: dict[tuple[str, str], Key] = {}  # by kind: what waits or is frozen
        self._passed_over: set[Key] = set()
        self._starts: dict[str, float] = {}
        self._notes: list[tuple[Path, Incident]] = []
        self._covered: set[Key] = set()
        self._job: _Job | None = None

    def looked(self, stream: Stream, found: Sequence[Symptom]) -> None:
        """Detectors found ``found`` in ``stream``."""
        if stream.name not in self._starts and stream.own_steps >= LEVEL_ROWS:
            self._starts[stream.name] = _start_of(stream.history.window())
        for symptom in found:
            if symptom.severity == "note":
                self._note(stream, symptom)
            elif declared(symptom.name).keeps_incident:
                self._raised.setdefault(_key(symptom), stream.step)
        if self._job is not None:
            self._collect(wait_s=0.0)
        if self._raised:
            self._freeze_one(stream, over=False)

    def frozen(self, symptoms: Iterable[Symptom]) -> None:
        """The gate has frozen a step with these: what belongs to them needs no bundle of its own."""
        keys = [_key(symptom) for symptom in symptoms]
        self._frozen |= dict.fromkeys(keys, "critical")
        self._covered |= set(keys)

    def keep(self, stream: Stream, first: int, last: int) -> None:
        """Freeze these steps as a note, which the user asked for."""
        self._collect(wait_s=WRITE_WAIT_S)
        asked = Symptom(BY_HAND, "note", first, last, f"steps {first} to {last}, kept by hand", stream=stream.name)
        self._freeze(stream, asked, (asked,))

    def settle(self, stream: Stream) -> None:
        """The run is about to return to an earlier state: freeze the gravest of what waits."""
        self._collect(wait_s=WRITE_WAIT_S)
        self._freeze_one(stream, over=True)

    def close(self, streams: Sequence[Stream]) -> None:
        """The run is over: freeze what waits, and let all be written, within ``WRITE_WAIT_S``."""
        deadline = time.monotonic() + WRITE_WAIT_S
        self._collect(wait_s=WRITE_WAIT_S)
        for stream in streams:
            while self._job is None and self._freeze_one(stream, over=True):
                self._collect(wait_s=deadline - time.monotonic())
        with self._guard.part("counting notes"):
            self._count_notes()

    @property
    def all_covered(self) -> bool:
        """Whether every symptom that a step made again could show is in a bundle of this run."""
        return not any(
            is_nonfinite(symptom) or declared(symptom.name).keeps_incident
            for key, symptom in self._recorder.symptoms.items()
            if key not in self._covered
        )

    def forget(self) -> None:
        """In a forked child: nothing of this is its own."""
        self._raised, self._job = {}, None

    # -- which -----------------------------------------------------------------------------------------------------

    def _note(self, stream: Stream, symptom: Symptom) -> None:
        """The first of its kind waits. Those that follow are counted when the run is over."""
        key, kind = _key(symptom), (symptom.name, symptom.stream)
        if kind in self._first_notes or self._made.count("note") >= INCIDENTS_MAX["note"]:
            return
        if key not in self._passed_over and _raises_loss(symptom):
            self._first_notes[kind] = key
            self._raised.setdefault(key, stream.step)

    def _freeze_one(self, stream: Stream, *, over: bool) -> bool:
        """Freeze the gravest of what is due; whether there was one."""
        if not self._recorder.recording or self._job is not None:
            return False
        for symptom in sorted(self._due(stream, over=over), key=_by_weight):
            del self._raised[_key(symptom)]
            story = self._story(stream, symptom)
            if self._is_wanted(symptom, story):
                with self._guard.part("freezing a symptom"):
                    self._freeze(stream, symptom, story)
                return True
            if symptom.severity == "note":
                self._pass_over(symptom)
        return False

    def _is_harm(self, stream: Stream, symptom: Symptom) -> bool:
        """Whether progress was lost, and no plan explains it: a schedule, a stage of the data, optimizers in turn."""
        if not _raises_loss(symptom):
            return False
        window = stream.history.window()
        if planned_change(window, symptom.first_step, symptom.last_step) or is_planned(window, symptom):
            return False
        return _lost_share(window, symptom, self._starts.get(stream.name, math.nan)) >= LOST_SHARE

    def _pass_over(self, symptom: Symptom) -> None:
        """A note that is not frozen leaves its place to the next of its kind."""
        self._passed_over.add(_key(symptom))
        if self._first_notes.get((symptom.name, symptom.stream)) == _key(symptom):
            del self._first_notes[symptom.name, symptom.stream]

    def _due(self, stream: Stream, *, over: bool) -> list[Symptom]:
        """The current symptoms of ``stream`` to freeze now; one that became a note is dropped where it did no harm."""
        due = []
        for key, raised in list(self._raised.items()):
            symptom = self._recorder.symptoms.get(key)
            if key[1] != stream.name or symptom is None:
                continue
            settled = over or stream.step >= raised + SETTLED_STEPS
            if settled and symptom.severity == "note" and not self._is_harm(stream, symptom):
                del self._raised[key]
                self._pass_over(symptom)
            elif settled or symptom.severity == "critical":
                due.append(symptom)
        return due

    def _story(self, stream: Stream, symptom: Symptom) -> tuple[Symptom, ...]:
        """``symptom``, and what belongs to it in the order in which it came."""
        own = [other for other in self._recorder.symptoms.values() if other.stream == stream.name]
        for story in tell(own, stream.history.window()):
            if _key(symptom) in map(_key, story.symptoms):
                return (symptom, *(other for other in story.symptoms if _key(other) != _key(symptom)))
        return (symptom,)

    def _is_wanted(self, symptom: Symptom, story: Sequence[Symptom]) -> bool:
        if self._made.count(symptom.severity) >= INCIDENTS_MAX[symptom.severity]:
            return False
        keys = set(map(_key, story))
        if symptom.severity == "note" and any(
            _key(other) in self._raised for other in story if other.severity != "note"
        ):
            return False  # what is graver in its story waits still
        rivals = [
            severity
            for key, severity in self._frozen.items()
            if key in keys or (key[0] == symptom.name and key[1] == symptom.stream)
        ]
        return all(SEVERITIES.index(severity) < SEVERITIES.index(symptom.severity) for severity in rivals)

    # -- the bundle ------------------------------------------------------------------------------------------------

    def _freeze(self, stream: Stream, symptom: Symptom, story: tuple[Symptom, ...]) -> None:
        settings, run = self._recorder.settings, self._recorder.open(stream)
        self._frozen |= {_key(symptom): symptom.severity}
        self._covered |= set(map(_key, story))
        self._made.append(symptom.severity)
        lead = "" if stream.name == "main" else f"{stream.name}-"
        path = free_place(run.path / "incidents" / f"{symptom.name}-{lead}step-{stream.step:06d}")
        window, scalars = _copied(stream.history.recent()), _copied(stream.history.window())
        losses = window.series("loss").between(stream.step, stream.step).values.tolist()
        why_not = self._observer.why_not(stream)
        missing = None if why_not is None else f"not kept: {why_not}"
        facts = script_facts(stream, list(stream.roots()))
        incident = Incident(
            run=settings.run_name,
            step=stream.step,
            stream=stream.name,
            created=utc_now(),
            symptoms=story,
            parameters=(),
            action=Action(stream.step, settings.policy, "observed", f"{symptom.severity}: {symptom.name}"),
            finding=Finding(None, WHY),
            losses=tuple(losses),
            loss_origin=None,
            micro_batches=0,
            batch_note=missing or BATCHES,
            state_note=missing or STATE,
            kind="symptom",
        )
        link = self._observer.hold(stream, run.path, onset=symptom.first_step)
        job = _Job(path, incident)

        def write() -> None:
            try:
                with staged(path) as stage:
                    freeze.write_bundle(
                        stage,
                        incident=incident,
                        window=window,
                        scalars=scalars,
                        environment={**process_facts(settings), **facts},
                        inputs=freeze.RecordedInputs(),
                        diff=settings.diff,
                    )
                    link(stage)
            except Exception as error:
                job.errors.append(error)

        job.thread = threading.Thread(target=write, name="steadytrain-incident", daemon=True)
        self._job = job
        job.thread.start()

    def _collect(self, *, wait_s: float) -> None:
        """Put a bundle that is whole on record."""
        job = self._job
        if job is None or job.thread is None:
            return
        job.thread.join(max(0.0, wait_s))
        if job.thread.is_alive():
            return
        self._job = None
        with self._guard.part("freezing a symptom"):
            if job.errors:
                raise job.errors[0]
            self._recorder.begin().add_incident(job.path, job.incident.step)
            self._tell_of(job.path)
            first = job.incident.symptoms[0]
            if first.severity == "note":  # no alarm: other tools have the symptom, and no bundle of it is sent to them
                self._notes.append((job.path, job.incident))
                self._say(f"note: {first.message}; the steps around it are kept: {job.path}")
                return
            self._recorder.add_incident(job.path, job.incident)
            self._say(f"the steps around it are kept: {job.path}")

    def _say(self, text: str) -> None:
        if ranks.speaks(self._recorder.settings.run_dir):
            self._tell(text)

    def _count_notes(self) -> None:
        """Put the number of those that followed into the bundle of the first of their kind."""
        for path, incident in self._notes:
            first = incident.symptoms[0]
            more = [
                other.first_step
                for other in self._recorder.symptoms.values()
                if (other.name, other.stream) == (first.name, first.stream) and other.first_step > first.first_step
            ]
            if more:
                numbers = {**first.numbers, MORE_NOTES: float(len(more)), LAST_NOTE_STEP: float(max(more))}
                reason = f"{incident.action.reason}, and {len(more)} more until step {max(more)}"
                counted = replace(
                    incident,
                    symptoms=(replace(first, numbers=numbers), *incident.symptoms[1:]),
                    action=replace(incident.action, reason=reason),
                )
                update_incident(path, counted)


def _raises_loss(symptom: Symptom) -> bool:
    kind = declared(symptom.name)
    return kind.grows and kind.keeps_incident and "loss" in symptom.signals


def _start_of(window: Window) -> float:
    """The loss that the run began with, NaN where there is none."""
    values = window.applied("loss").values[:LEVEL_ROWS]
    return median(values) if len(values) else math.nan


def _lost_share(window: Window, symptom: Symptom, start: float) -> float:
    """The share of the progress so far that the highest loss of a symptom undid, Inf where there was none yet."""
    loss = window.applied("loss")
    before = loss.values[loss.steps < symptom.first_step][-LEVEL_ROWS:]
    here = loss.between(symptom.first_step, symptom.last_step).values
    if not len(before) or not len(here):
        return 0.0
    level = median(before)
    lost, progress = float(here.max()) - level, start - level
    return max(0.0, lost) / progress if progress > 0 else math.inf


def _copied(window: Window) -> Window:
    """Training goes on writing into the arrays of a window."""
    return replace(
        window,
        steps=window.steps.copy(),
        time=window.time.copy(),
        signals={name: values.copy() for name, values in window.signals.items()},
        present={name: values.copy() for name, values in window.present.items()},
        skipped=window.skipped.copy(),
        refused=window.refused.copy(),
        gradient_norms=np.array(window.gradient_norms),
    )


def _key(symptom: Symptom) -> Key:
    return symptom.name, symptom.stream, symptom.first_step


def _by_weight(symptom: Symptom) -> tuple[int, int, str]:
    """Gravest first, then that which came first."""
    return -SEVERITIES.index(symptom.severity), symptom.first_step, symptom.name
