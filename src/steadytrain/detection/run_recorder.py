"""The run's books: its steps, its symptoms, its ledger, in memory and in the run folder."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from steadytrain.capture.hooks import seeding
from steadytrain.capture.hooks.fail_open import Guard, Tell
from steadytrain.capture.hooks.last_signals import note_signals, remove_empty_notes
from steadytrain.capture.incident import environment
from steadytrain.capture.machine import MachineSampler, Sample
from steadytrain.capture.settings import Settings, utc_now
from steadytrain.capture.step import ranks
from steadytrain.capture.step.gate import Measurement
from steadytrain.capture.step.observers import StepObserver
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.step.recording import Record
from steadytrain.core.incident import Action, Incident
from steadytrain.core.model import FACTS, FIRST_STREAM, SEVERITIES, SIGNALS, Reading, Symptom, Window
from steadytrain.detection.detector_schedule import DetectorSchedule
from steadytrain.detection.earlier_run import history_of
from steadytrain.detection.incidents import SymptomIncidents
from steadytrain.detection.open_courses import RECENT_STEPS, OpenCourses, is_recent
from steadytrain.detection.record_folder import choose_folder, rank_facts
from steadytrain.detection.sink import NO_SINK, Sink
from steadytrain.detection.step_history import StepHistory
from steadytrain.detectors import Detector
from steadytrain.grouping.catalog import needed_tables, spoils_weights
from steadytrain.grouping.stories import Story, is_of_nonfinite, of_nonfinite, tell
from steadytrain.storage.retention import Keeper
from steadytrain.storage.run_folder import RunWriter
from steadytrain.storage.run_summaries import keep_summary
from steadytrain.storage.segments import SegmentWriter
from steadytrain.storage.tables import TableWriter

TELLS_MAX = 3
"""Lines about one symptom whose severity goes up and down; the end of the run has the last word."""

VOCABULARY_MIN = 256
"""Logits of a model that is given tokens are taken for its vocabulary from here on: bytes have as many. Fewer may be
the classes of a whole text."""

NOT_SENT = ("gradients", "script", "replica", "replica_probe", "ranks")
"""Tables whose readings are not sent to other tools: these have the gradients with the step, and of what the script
and the ranks do the symptoms."""

_NO_TENSORS = np.zeros(0, np.float32)


class RunRecorder:
    """Writes the measurements and runs the detectors. A disk error is reported once; then nothing more is written."""

    def __init__(self, settings: Settings, guard: Guard, tell: Tell, detectors: Sequence[Detector], sink: Sink) -> None:
        self.settings = settings
        self.symptoms: dict[tuple[str, str, int], Symptom] = {}
        self.stories: list[Story] = []
        self.actions: list[Action] = []
        self.recording = True
        self._guard = guard
        self._tell = tell
        self.told: dict[tuple[str, str, int], str] = {}
        self._tells: Counter[tuple[str, str, int]] = Counter()
        self._looks = DetectorSchedule(detectors, guard)
        self._open = OpenCourses()
        self._run: RunWriter | None = None
        self._sink = sink
        self._sending = False
        self._machine: MachineSampler | None = None
        self._keeper: Keeper | None = None
        self._facts_waiting: dict[str, Any] = {}
        self._known: dict[str, float] = {}  # facts that detectors read
        self._classes = 0
        self._looked = 0

    def begin_stream(self, name: str) -> tuple[StepHistory, int]:
        """The memory of a stream that begins, and the step of the earlier run that it goes on after, 0 for none."""
        if self.settings.continues is not None:
            with self._guard.part("reading the steps of the run before"):
                return history_of(name, self.settings.continues)
        return StepHistory(stream=name), 0

    def incidents(self, observer: StepObserver, frozen: Callable[[Path], None]) -> SymptomIncidents:
        """What freezes symptoms of finite values; ``frozen`` is called with each bundle that is whole."""
        return SymptomIncidents(self, self._guard, observer, self._tell, frozen)

    @property
    def detector_names(self) -> list[str]:
        """The detectors whose signals were present, by their names in `explain`."""
        return sorted(self._looks.looked)

    def too_short_for(self, steps: int) -> dict[str, int]:
        """The detectors that need more than ``steps`` steps, and how many."""
        return {name: needed for name, needed in sorted(self._looks.steps_needed.items()) if needed > steps}

    @property
    def idle_detectors(self) -> list[str]:
        """The others, without those of what the script does not have: several ranks, a loss scale."""
        absent = {"loss_scale", "scaler_skips"} | ({"ranks"} if ranks.world_size() == 1 else set())
        return sorted(name for name in self._looks.names - self._looks.looked if needed_tables(name) - absent)

    def open(self, stream: Stream) -> RunWriter:
        """The run folder, made when the first step of ``stream`` is seen and not before."""
        if self._run is None:
            run = self.begin()
            facts = {
                "model": environment.model_facts(list(stream.roots()), stream.parameters),
                "optimizer": environment.optimizer_facts(stream.optimizers[0]),
            }
            with self._guard.part("reading the environment"):
                facts |= {seeding.KEY: seeding.facts()}
                facts |= {"versions": environment.versions(), "numerics": environment.numerics()}
            for name, value in facts.items():
                run.set_fact(name, value)
            with self._guard.part("reading the machine"):
                every_s = self.settings.level.machine_every_s
                self._machine = MachineSampler(run.path, every_s=every_s, guard=self._guard)
                self._machine.start()
            with self._guard.part("keeping the run folder small"):
                self._keeper = Keeper(run.path, lambda error: self._guard.report("keeping the run folder small", error))
                self._keeper.start()
            self._open_sink(run.path, facts)
        return self.begin()

    def _open_sink(self, folder: Path, facts: Mapping[str, Any]) -> None:
        self._sending = True
        with self._guard.part("exporting"):
            self._sink.open(folder, {**self.settings.description, **rank_facts(), **facts})

    def begin(self) -> RunWriter:
        """The run folder, made if it is not there: also for a run that failed before its first step."""
        if self._run is None:
            folder, begun = choose_folder(self.settings, self._tell)
            self._run = RunWriter(folder, {**self.settings.description, **rank_facts()})
            begun()
            self._run.set_fact("torch", torch.__version__)
            for name, value in self._facts_waiting.items():
                self._run.set_fact(name, value)
            with self._guard.part("noting signals"):
                note_signals(self._run.path)
        return self._run

    @property
    def machine_samples(self) -> list[Sample]:
        """The last readings of the machine, oldest first."""
        return self._machine.recent() if self._machine is not None else []

    @property
    def _has_books(self) -> bool:
        """Whether there is a run folder, or may be one: what it does not take is reported once."""
        return self.recording or self._run is not None

    @property
    def begun(self) -> bool:
        """Whether this process has a run folder."""
        return self._run is not None

    def commit(self, stream: Stream, measured: Measurement) -> None:
        """Put a step into memory and on disk, once."""
        if measured.committed:
            return
        measured.committed = True
        if self._classes >= VOCABULARY_MIN and measured.record.scalars.get("tokens"):
            self.set_fact("vocabulary", self._classes)
        stream.history.facts = self._known
        stream.history.append(measured.record, measured.tensor_names)
        if not self.recording:
            return
        try:
            run = self.open(stream)
            if stream.writer is None:
                stream.writer = SegmentWriter(run.path / "steps" / stream.name, stream=stream.name)
            stream.writer.append(replace(measured.record, gradient_norms=_NO_TENSORS), ())
        except Exception as error:
            self._give_up(error, measured.record.step)
            return
        record = measured.record
        norms = Reading("gradients", measured.tensor_names, ("norm",), record.gradient_norms[:, None])
        self.read(stream, record.step, record.time, norms)
        self._read_machine(stream, record.step)
        with self._guard.part("exporting"):
            self._sink.step(stream.name, record, measured.tensor_names)

    def _read_machine(self, stream: Stream, step: int) -> None:
        for sample in self._machine.take() if self._machine is not None else ():
            self.read(stream, step, sample.time, sample.reading)

    def read(self, stream: Stream, step: int, time: float, reading: Reading) -> None:
        """Put one reading of a table into memory, for the detectors, and on disk."""
        stream.history.read(step, time, reading)
        if not self.recording:
            return
        try:
            if reading.table not in stream.tables:
                folder = self.open(stream).path / "tables" / stream.name
                stream.tables[reading.table] = TableWriter(folder, reading.table)
            stream.tables[reading.table].append(step, time, reading)
        except Exception as error:
            self._give_up(error, step)
            return
        if reading.table not in NOT_SENT:
            with self._guard.part("exporting"):
                self._sink.reading(stream.name, step, time, reading)

    def add_incident(self, path: Path, incident: Incident) -> None:
        """The bundle at ``path`` is sealed, with its finding."""
        with self._guard.part("exporting"):
            self._sink.incident(path, incident)

    def act(self, stream: Stream, action: Action) -> None:
        """Add an entry to the ledger, and send it to other tools."""
        self.actions.append(action)
        if self._has_books:
            with self._guard.part("writing the ledger"):
                self.open(stream).add_action(action)
        with self._guard.part("exporting"):
            self._sink.action(stream.name, action)

    def set_fact(self, name: str, value: Any) -> None:
        """One more fact of the run; kept until there is a folder to write it to. Of ``FACTS``, detectors get it."""
        if name in FACTS:
            if self._known.get(name) == float(value):
                return
            self._known[name] = float(value)
        if self._run is None:
            self._facts_waiting[name] = value
        elif self.recording:
            try:
                self._run.set_fact(name, value)
            except Exception as error:
                self._give_up(error)

    def sick_at(self, step: int) -> str | None:
        """The symptom, if there is one, that spoils weights and is going on at that step of the first stream."""
        for symptom in self.symptoms.values():
            if spoils_weights(symptom) and symptom.first_step <= step <= symptom.last_step + RECENT_STEPS:
                return symptom.name
        return None

    def saw_logits(self, classes: int) -> None:
        """Number of classes of the model: its vocabulary, if it trains on tokens."""
        self._classes = classes

    def forget(self) -> None:
        """In a forked child: nothing of this is its own."""
        self._sink.forget()

    def _give_up(self, error: Exception, step: int | None = None) -> None:
        self._guard.report("recording to the run folder", error)
        self.recording = False
        if self._run is not None:
            with contextlib.suppress(Exception):  # the error's own text may fail
                self._run.stop(step, f"{type(error).__name__}: {error}")
        if not self._sending:  # alerts need no folder
            self._open_sink(self.settings.run_dir, {})

    def look(self, stream: Stream) -> list[Symptom]:
        """Let the detectors look whose turn it is, and record what is new or has grown. Gravest first."""
        return self._record(stream, *self._looks.turn(stream))

    def detect(self, stream: Stream) -> list[Symptom]:
        """Let every detector look now. Gravest first; at the same severity the loss leads."""
        return self._record(stream, *self._looks.all(stream))

    def _record(self, stream: Stream, window: Window, seen: Sequence[Symptom]) -> list[Symptom]:
        if len(self._looks.looked) > self._looked:
            self._looked = len(self._looks.looked)
            self.set_fact("detectors", self.detector_names)
        newest = int(window.steps[-1]) if len(window) else 0
        # What is over was on record when it was seen; at the edge of a window that slides it may look otherwise.
        known = {(symptom.name, symptom.first_step) for symptom in seen}
        recent = (
            symptom
            for symptom in seen
            if symptom.last_step > stream.began
            and is_recent(symptom, newest, self.symptoms.get((symptom.name, symptom.stream, symptom.first_step)))
        )
        found = [self._as_known(symptom, known) for symptom in recent]
        found += self._open.settled(window, self.symptoms.values(), known)
        for symptom in found:
            self.report(stream, symptom)
        return sorted(found, key=_by_weight)

    def report(self, stream: Stream, symptom: Symptom) -> None:
        """Put a symptom on record; one of the same name, stream and first step is replaced."""
        key = (symptom.name, symptom.stream, symptom.first_step)
        if self.symptoms.get(key) != symptom:
            self.symptoms[key] = symptom
            if self._has_books:
                with self._guard.part("recording a symptom"):
                    self.open(stream).raise_symptom(symptom)
            with self._guard.part("exporting"):
                self._sink.symptom(symptom)

    def _as_known(self, symptom: Symptom, seen: Collection[tuple[str, int]]) -> Symptom:
        """``symptom`` under the first step that it is on record with, where it began in the middle of such a one.

        The edge of a window that slides may cut an episode, and what is left of it is no new one.
        """
        if (symptom.name, symptom.stream, symptom.first_step) in self.symptoms:
            return symptom
        for known in reversed(self.symptoms.values()):
            same = (known.name, known.stream) == (symptom.name, symptom.stream)
            cut = known.first_step < symptom.first_step <= known.last_step
            if same and cut and (known.name, known.first_step) not in seen:
                message = symptom.message if symptom.severity != known.severity else known.message
                last_step = max(known.last_step, symptom.last_step)
                return replace(symptom, first_step=known.first_step, last_step=last_step, message=message)
        return symptom

    def tell_symptoms(self, found: Sequence[Symptom]) -> None:
        """Say each once, and again when its severity has changed, up to :data:`TELLS_MAX` times. A note is for the
        report only, unless it was critical before. Of what follows from one NaN the first is said, and the number."""
        first = next((symptom for symptom in found if is_of_nonfinite(symptom)), None)
        others = sum(is_of_nonfinite(symptom) and symptom.severity != "note" for symptom in found) - 1
        for symptom in found:
            key = (symptom.name, symptom.stream, symptom.first_step)
            before = self.told.get(key)
            lowered = before == "critical" != symptom.severity
            if before != symptom.severity and (symptom.severity != "note" or lowered):
                follows = is_of_nonfinite(symptom) and self._is_known_nonfinite(symptom)
                self.told[key] = symptom.severity
                self._tells[key] += 1
                if ranks.speaks(self.settings.run_dir) and not follows and self._tells[key] <= TELLS_MAX:
                    more = f"; {of_nonfinite(others)}" if symptom is first and others > 0 else ""
                    severity = f"{symptom.severity} (no longer critical)" if lowered else symptom.severity
                    whose = "" if symptom.stream == FIRST_STREAM else f" ({symptom.stream})"
                    self._tell(f"{severity}: {symptom.message}{whose}{more}")

    def _is_known_nonfinite(self, symptom: Symptom) -> bool:
        """Whether an equally grave symptom that goes on has reported the NaN or Inf that ``symptom`` is about."""
        of_stream = [one for one in self.symptoms.values() if one.stream == symptom.stream and is_of_nonfinite(one)]
        return any(
            self.told.get((one.name, one.stream, one.first_step)) == symptom.severity
            and one.first_step <= symptom.first_step <= one.last_step + RECENT_STEPS
            for one in of_stream
        )

    def close(self, streams: Sequence[Stream], facts: dict[str, Any]) -> None:
        """Close the segments and the folder, with how the run ended."""
        with self._guard.part("telling stories"):
            self._tell_stories(streams)
        waiting = self.too_short_for(max((stream.own_steps for stream in streams), default=0))
        self.set_fact("detectors", [name for name in self.detector_names if name not in waiting])
        if self._machine is not None:
            with self._guard.part("reading the machine"):
                self._machine.close()
                facts = {**facts, "machine": self._machine.facts, "machine_notes": self._machine.notes}
            if streams:
                self._read_machine(streams[0], streams[0].step)
        for stream in streams:
            for writer in (stream.writer, *stream.tables.values()):
                if writer is not None:
                    with self._guard.part("closing a segment"):
                        writer.close()
        if self._keeper is not None:
            with self._guard.part("keeping the run folder small"):
                self._keeper.close()
        if self._sending:
            with self._guard.part("exporting"):
                last = max((stream.step for stream in streams), default=0)
                self._sink.close(str(facts.get("ended")), str(facts.get("failure") or ""), last)
        if self._run is not None:
            remove_empty_notes(self._run.path)
            with contextlib.closing(self._run):
                for name, value in {**facts, "ended_at": utc_now(), "warnings": self._guard.warnings}.items():
                    self._run.set_fact(name, value)
            with self._guard.part("keeping a summary for listings"):
                keep_summary(self._run.path)

    def _tell_stories(self, streams: Sequence[Stream]) -> None:
        """Which symptoms belong together is known when all are; put it on record."""
        for stream in streams:
            own = [symptom for symptom in self.symptoms.values() if symptom.stream == stream.name]
            for story in tell(own, stream.history.window()):
                self.stories.append(story)
                for symptom in story.symptoms:
                    self.symptoms[symptom.name, symptom.stream, symptom.first_step] = symptom
                    if self._run is not None and self.recording:
                        self._run.raise_symptom(symptom)


def recording(detectors: Sequence[Detector] = (), sink: Sink = NO_SINK) -> Record:
    """The recorder for a watcher: it records the run, runs ``detectors`` and sends results to ``sink``."""
    return lambda settings, guard, tell: RunRecorder(settings, guard, tell, detectors, sink)


def _by_weight(symptom: Symptom) -> tuple[int, int, int]:
    """Gravest first, then the newest, then in the order in which a step computes the signals."""
    order = (
        list(SIGNALS).index(symptom.signals[0]) if symptom.signals and symptom.signals[0] in SIGNALS else len(SIGNALS)
    )
    return -SEVERITIES.index(symptom.severity), -symptom.last_step, order
