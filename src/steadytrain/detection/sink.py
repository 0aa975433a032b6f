"""Where what was seen may go besides the run folder: the one thing that the recorder knows of other tools.

A sink is handed values and never asked for anything. Every method is called on the training thread and has to come
back at once: what takes time belongs on a thread of the sink's own. A sink decides nothing about the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, final

from steadytrain.core.incident import Action, Incident
from steadytrain.core.model import Reading, Symptom
from steadytrain.storage.segments import StepRecord


class Sink(Protocol):
    """Takes what was seen of a run. ``open`` comes before all else, ``close`` after it, each once."""

    def open(self, folder: Path, run: Mapping[str, Any]) -> None:
        """The first step is about to be recorded in ``folder``; ``run`` is its description and its facts."""

    def step(self, stream: str, record: StepRecord, tensor_names: tuple[str, ...]) -> None:
        """A step was recorded; ``record`` has the gradient norm of each of ``tensor_names``."""

    def reading(self, stream: str, step: int, time: float, reading: Reading) -> None:
        """A table was measured at ``step``. ``reading`` must not be changed afterwards by the caller."""

    def symptom(self, symptom: Symptom) -> None:
        """A symptom is new or has grown."""

    def incident(self, path: Path, incident: Incident) -> None:
        """The bundle of an incident is at ``path``, sealed, with its finding."""

    def action(self, stream: str, action: Action) -> None:
        """An entry of the ledger: what steadytrain did to the run after a step of ``stream``."""

    def close(self, ended: str, why: str = "", step: int = 0) -> None:
        """The run is over; ``ended`` is how, as in the run folder, and ``why`` what ended the script if it failed.
        ``step`` is the last one, recorded or not. May wait, within a bound.
        """

    def forget(self) -> None:
        """This is a forked child: nothing here is its own. Leave everything alone and let go of what was inherited."""


@final
class NoSink:
    """Nothing goes anywhere else."""

    def open(self, folder: Path, run: Mapping[str, Any]) -> None: ...
    def step(self, stream: str, record: StepRecord, tensor_names: tuple[str, ...]) -> None: ...
    def reading(self, stream: str, step: int, time: float, reading: Reading) -> None: ...
    def symptom(self, symptom: Symptom) -> None: ...
    def incident(self, path: Path, incident: Incident) -> None: ...
    def action(self, stream: str, action: Action) -> None: ...
    def close(self, ended: str, why: str = "", step: int = 0) -> None: ...
    def forget(self) -> None: ...


NO_SINK = NoSink()
