"""What a watcher asks of whoever records and judges the run: contracts. Not here: recording or judging anything.

A watcher is handed a :data:`Record` and makes its recorder with it; ``detection`` has the one that writes a run folder.
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
from steadytrain.core.incident import Incident
from steadytrain.core.model import Reading, Symptom
from steadytrain.grouping.stories import Story
from steadytrain.storage.run_folder import RunWriter


class Incidents(Protocol):
    """Freezes symptoms of finite values, beside training."""

    def looked(self, stream: Stream, found: Sequence[Symptom]) -> None:
        """Detectors have looked at ``stream`` and see ``found``."""

    def frozen(self, symptoms: Iterable[Symptom]) -> None:
        """The gate has frozen a step with these."""

    def close(self, streams: Sequence[Stream]) -> None:
        """The run is over."""

    @property
    def all_covered(self) -> bool:
        """Whether every symptom that a step made again could show is in a bundle."""

    def forget(self) -> None:
        """In a forked child: nothing of this is its own."""


class Recorder(Protocol):
    """Keeps what is seen, and lets detectors look at it. All is the training thread's."""

    recording: bool
    """Whether anything is written."""

    @property
    def settings(self) -> Settings: ...

    @property
    def symptoms(self) -> Mapping[tuple[str, str, int], Symptom]:
        """What was raised so far, by name, stream and first step."""

    @property
    def stories(self) -> Sequence[Story]:
        """The symptoms that belong together; told when the run is closed."""

    @property
    def detector_names(self) -> list[str]:
        """The detectors that have found something to look at."""

    def too_short_for(self, steps: int) -> dict[str, int]:
        """The detectors that need more than ``steps`` steps, and how many."""

    @property
    def idle_detectors(self) -> list[str]:
        """The others."""

    @property
    def machine_samples(self) -> list[Sample]:
        """The last readings of the machine, oldest first."""

    @property
    def begun(self) -> bool:
        """Whether this process has a run folder."""

    def begin_stream(self, name: str) -> tuple[History, int]:
        """The memory of a stream that begins, and the step of an earlier run that it goes on after, 0 for none."""

    def incidents(self, observer: StepObserver, frozen: Callable[[Path], None]) -> Incidents:
        """What freezes symptoms; ``frozen`` is called with each bundle that is whole."""

    def begin(self) -> RunWriter:
        """The run folder, made if it is not there."""

    def open(self, stream: Stream) -> RunWriter:
        """The run folder, made when the first step of ``stream`` is seen."""

    def commit(self, stream: Stream, measured: Measurement) -> None:
        """Put a step into memory and on disk, once."""

    def read(self, stream: Stream, step: int, time: float, reading: Reading) -> None:
        """Put one reading of a table into memory and on disk."""

    def add_incident(self, path: Path, incident: Incident) -> None:
        """The bundle at ``path`` is sealed, with its finding."""

    def set_fact(self, name: str, value: Any) -> None:
        """One more fact of the run."""

    def saw_logits(self, classes: int) -> None:
        """How many classes the model tells apart."""

    def look(self, stream: Stream) -> list[Symptom]:
        """Let the detectors look whose turn it is. Gravest first."""

    def detect(self, stream: Stream) -> list[Symptom]:
        """Let every detector look now. Gravest first."""

    def report(self, stream: Stream, symptom: Symptom) -> None:
        """Put a symptom on record that no detector can see; one of the same name and first step is replaced."""

    def tell_symptoms(self, found: Sequence[Symptom]) -> None:
        """Say each once, and again when it has become graver."""

    def forget(self) -> None:
        """In a forked child: nothing of this is its own."""

    def close(self, streams: Sequence[Stream], facts: dict[str, Any]) -> None:
        """The run is over; ``facts`` say how it ended."""


Record = Callable[[Settings, Guard, Tell], Recorder]
