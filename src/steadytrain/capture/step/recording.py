"""The contracts between the watcher and the recorder, which records and judges the run. Not here: an implementation.

A watcher receives a :data:`Record` and makes its recorder with it; ``detection`` has the one that writes a run folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from steadytrain.capture.hooks.fail_open import Guard, Tell
from steadytrain.capture.machine import Sample
from steadytrain.capture.settings import Settings
from steadytrain.capture.step.gate import Measurement
from steadytrain.capture.step.history import History
from steadytrain.capture.step.observers import StepObserver
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.core.incident import Action, Incident
from steadytrain.core.model import Reading, Symptom
from steadytrain.grouping.stories import Story
from steadytrain.storage.run_folder import RunWriter


class Incidents(Protocol):
    """Freezes symptoms of finite values as bundles while the training continues."""

    def looked(self, stream: Stream, found: Sequence[Symptom]) -> None:
        """The detectors have run on ``stream`` and returned ``found``."""

    def frozen(self, symptoms: Iterable[Symptom]) -> None:
        """The gate has frozen a step with these symptoms."""

    def settle(self, stream: Stream) -> None:
        """The run is about to return to an earlier state: freeze now what waits."""

    def keep(self, stream: Stream, first: int, last: int) -> None:
        """Freeze these steps, which the user asked for."""

    def close(self, streams: Sequence[Stream]) -> None:
        """The run is over."""

    @property
    def all_covered(self) -> bool:
        """Whether every symptom that a replay could show is in a bundle."""

    def forget(self) -> None:
        """Called in a forked child, which owns none of this."""


class Recorder(Protocol):
    """Records the run and runs the detectors. Only the training thread uses it."""

    actions: list[Action]
    """The entries of the ledger so far."""

    recording: bool
    """Whether the recorder writes anything."""

    told: dict[tuple[str, str, int], str]
    """The severities with which symptoms were said last, by name, stream and first step."""

    @property
    def settings(self) -> Settings: ...

    @property
    def symptoms(self) -> Mapping[tuple[str, str, int], Symptom]:
        """The symptoms so far, by name, stream and first step."""

    @property
    def stories(self) -> Sequence[Story]:
        """The groups of symptoms that belong together; shown when the run closes."""

    @property
    def detector_names(self) -> list[str]:
        """The detectors whose input data this run has."""

    def too_short_for(self, steps: int) -> dict[str, int]:
        """The detectors that need more than ``steps`` steps, each with the number of steps it needs."""

    @property
    def idle_detectors(self) -> list[str]:
        """The detectors without input data in this run."""

    @property
    def machine_samples(self) -> list[Sample]:
        """The last readings of the machine, oldest first."""

    @property
    def begun(self) -> bool:
        """Whether this process has a run folder."""

    def begin_stream(self, name: str) -> tuple[History, int]:
        """The history of a new stream, and the last step of the earlier run that it continues, 0 if there is none."""

    def incidents(self, observer: StepObserver, frozen: Callable[[Path], None]) -> Incidents:
        """The object that freezes symptoms; it calls ``frozen`` with each complete bundle."""

    def begin(self) -> RunWriter:
        """The run folder, created if it does not exist."""

    def open(self, stream: Stream) -> RunWriter:
        """The run folder, created at the first step of ``stream``."""

    def commit(self, stream: Stream, measured: Measurement) -> None:
        """Add a step to memory and disk, once."""

    def read(self, stream: Stream, step: int, time: float, reading: Reading) -> None:
        """Add one reading of a table to memory and disk."""

    def add_incident(self, path: Path, incident: Incident) -> None:
        """The bundle at ``path`` is sealed, with its finding."""

    def act(self, stream: Stream, action: Action) -> None:
        """Add an entry to the ledger."""

    def set_fact(self, name: str, value: Any) -> None:
        """Set a fact of the run."""

    def sick_at(self, step: int) -> str | None:
        """The symptom, if there is one, that spoils weights and is going on at that step of the first stream."""

    def saw_logits(self, classes: int) -> None:
        """The model's logits have so many classes."""

    def look(self, stream: Stream) -> list[Symptom]:
        """Run the detectors that are due. Returns symptoms, most severe first."""

    def detect(self, stream: Stream) -> list[Symptom]:
        """Run every detector now. Returns symptoms, most severe first."""

    def report(self, stream: Stream, symptom: Symptom) -> None:
        """Record a symptom that no detector can find. It replaces one of the same name and first step."""

    def tell_symptoms(self, found: Sequence[Symptom]) -> None:
        """Show each symptom once, and again when its severity has risen."""

    def forget(self) -> None:
        """Called in a forked child, which owns none of this."""

    def close(self, streams: Sequence[Stream], facts: dict[str, Any]) -> None:
        """The run is over; ``facts`` describe its end."""


Record = Callable[[Settings, Guard, Tell], Recorder]
