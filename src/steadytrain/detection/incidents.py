"""When a symptom becomes an incident: the run is frozen while the tape of the steps that led to it is still there.

A critical symptom is frozen at once. A warning has to last ``SETTLED_STEPS`` first: by then it is known what became of
it, and one that did no harm is a note (``grouping``). When the run is over nothing is waited for. Of symptoms that are
one story only the gravest is frozen, of each kind one, and a few in all.

The training thread decides and copies the window; a thread of its own writes, so that training waits for no disk.
Not here: losses and gradients that are not finite. Those are the gate's, which freezes the step itself.
"""

from __future__ import annotations

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
from steadytrain.capture.step.observers import StepObserver
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.step.recording import Recorder
from steadytrain.core.incident import Action, Finding, Incident
from steadytrain.core.model import SEVERITIES, Severity, Symptom, Window
from steadytrain.grouping.catalog import declared
from steadytrain.grouping.stories import tell

SETTLED_STEPS = 64
"""As many as a story waits for what belongs to it (``stories.telling.MARGIN_STEPS``)."""

INCIDENTS_MAX: dict[Severity, int] = {"critical": 3, "warning": 3}
"""Bundles of a run. They share the disk of the recording while it is there, and keep their part of it afterwards."""

WRITE_WAIT_S = 30.0
"""What the end of a run waits for its bundles to be written."""


WHY = "not searched: the symptom is one of finite values (`steadytrain onset` finds the first that left its course)"
STATE = "in the snapshots of the recording (replay/snapshots)"
BATCHES = "on the tape of the recording (replay/tape)"

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
        self._job: _Job | None = None

    def looked(self, stream: Stream, found: Sequence[Symptom]) -> None:
        """Detectors found ``found`` in ``stream``."""
        for symptom in found:
            if symptom.severity != "note" and declared(symptom.name).keeps_incident:
                self._raised.setdefault(_key(symptom), stream.step)
        if self._job is not None:
            self._collect(wait_s=0.0)
        if self._raised:
            self._freeze_one(stream, over=False)

    def frozen(self, symptoms: Iterable[Symptom]) -> None:
        """The gate has frozen a step with these: what belongs to them needs no bundle of its own."""
        self._frozen |= {_key(symptom): "critical" for symptom in symptoms}

    def close(self, streams: Sequence[Stream]) -> None:
        """The run is over: freeze what waits, and let all be written, within ``WRITE_WAIT_S``."""
        deadline = time.monotonic() + WRITE_WAIT_S
        self._collect(wait_s=WRITE_WAIT_S)
        for stream in streams:
            while self._job is None and self._freeze_one(stream, over=True):
                self._collect(wait_s=deadline - time.monotonic())

    def forget(self) -> None:
        """In a forked child: nothing of this is its own."""
        self._raised, self._job = {}, None

    # -- which -----------------------------------------------------------------------------------------------------

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
        return False

    def _due(self, stream: Stream, *, over: bool) -> list[Symptom]:
        """The current symptoms of ``stream`` to freeze now; one that became a note is dropped."""
        due = []
        for key, raised in list(self._raised.items()):
            symptom = self._recorder.symptoms.get(key)
            if key[1] != stream.name or symptom is None:
                continue
            settled = over or stream.step >= raised + SETTLED_STEPS
            if settled and symptom.severity == "note":
                del self._raised[key]
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
        self._made.append(symptom.severity)
        lead = "" if stream.name == "main" else f"{stream.name}-"
        path = run.path / "incidents" / f"{symptom.name}-{lead}step-{stream.step:06d}"
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
                freeze.write_bundle(
                    path,
                    incident=incident,
                    window=window,
                    scalars=scalars,
                    environment={**process_facts(settings), **facts},
                    inputs=freeze.RecordedInputs(),
                    diff=settings.diff,
                )
                link(path)
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
            self._recorder.add_incident(job.path, job.incident)
            self._tell(f"the steps around it are kept: {job.path}")


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
