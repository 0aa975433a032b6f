"""What an exporter is: it writes what was seen of a run into another tool. And the values that it is handed.

An exporter lives on a thread of its own (``exporter_queue.py``), or in a process of its own (``exporter_process.py``),
never on the training thread. It may raise and it may be slow; neither reaches the run. What is sent and how often is
chosen before it (``sent_values.py``), so that an exporter is only about its tool. Torch-free.
"""

from __future__ import annotations

import abc
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steadytrain.core.incident import Incident
from steadytrain.core.model import Severity, Symptom

PREFIX = "steadytrain/"
"""Before every name of ours in a run that is the script's own."""

SEVERITY_LEVELS: Mapping[Severity, int] = {"note": 1, "warning": 2, "critical": 3}
"""How grave a symptom is, as the value of its marker."""


INCIDENT_BYTES_MAX = 64 << 20
TENSOR_SUFFIX = ".safetensors"


@dataclass(frozen=True)
class Run:
    """What an exporter is told of the run: ``facts`` are redacted JSON, ``named`` says that a person asked for this.

    A run of another tool that was only found active is sent numbers and documents; incidents with their tensors, which
    may be large and hold training data, go where they were asked to go.
    """

    name: str
    folder: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    named: bool = True


@dataclass(frozen=True)
class Row:
    """Values of one step. A ``rare`` row (a table, a marker) is not worth less for being older than the next one."""

    step: int
    time: float
    values: Mapping[str, float]
    rare: bool = False


@dataclass(frozen=True)
class Histogram:
    """How the elements of one tensor spread over powers of two, as shares of all of them.

    ``shares[i]`` have a magnitude in ``[2**(first + i), 2**(first + i + 1))``; ``below`` and ``above`` are finite and
    outside of these.
    """

    step: int
    time: float
    name: str
    first: int
    shares: Sequence[float]
    zero: float
    below: float
    above: float
    nonfinite: float

    @property
    def bars(self) -> list[float]:
        """What is drawn: the zeros, what is below, the shares, what is above; ``edges`` are the powers of two.

        Zeros have no power of two: they stand two below the first, and what is not zero but below it stands between.
        """
        return [self.zero, self.below, *self.shares, self.above]

    @property
    def edges(self) -> list[int]:
        """Where the bars begin and, the last one, where they end."""
        return [self.first - 2 + position for position in range(len(self.shares) + 4)]


class ExporterError(Exception):
    """Something could not be written; the text says all that a person needs."""


class ExporterGoneError(ExporterError):
    """Nothing more can be written."""


class Exporter(abc.ABC):
    """Writes one run into one tool. Called from one thread, in order: ``open``, anything, ``close``."""

    @abc.abstractmethod
    def open(self, run: Run) -> None:
        """Begin, or find, the run there."""

    @abc.abstractmethod
    def scalars(self, row: Row) -> None:
        """Write the values of one step."""

    @abc.abstractmethod
    def histogram(self, histogram: Histogram) -> None:
        """Write one histogram as the tool can draw it."""

    @abc.abstractmethod
    def symptom(self, symptom: Symptom) -> None:
        """Mark where a symptom was raised."""

    @abc.abstractmethod
    def incident(self, path: Path, incident: Incident) -> None:
        """Keep an incident, or say where it lies."""

    @abc.abstractmethod
    def flush(self) -> None:
        """A batch has been handed over: write it out."""

    @abc.abstractmethod
    def close(self, ended: str) -> None:
        """The run is over. A run that is the script's own stays open."""

    def let_go(self) -> None:  # noqa: B027 (most exporters have nothing to let go of)
        """Nobody waits any longer. Called from another thread while ``close`` or anything else may hang."""

    def forget(self) -> None:  # noqa: B027 (most exporters have inherited nothing)
        """In a forked child: let go of what was inherited, and do nothing else."""


def incident_text(path: Path, incident: Incident) -> str:
    """An incident in a few lines of markdown: when, why, the first bad operation, what was done, where it lies."""
    lines = [f"**step {incident.step}**: {incident.action.reason} ({incident.action.what})"]
    located = incident.finding.located
    if located is not None:
        where = f", {located.file}:{located.line} `{located.code}`" if located.file else ""
        lines.append(f"first bad operation: {located.operation} ({located.phase}, gave {located.produced}){where}")
    else:
        lines.append(f"first bad operation: not named: {incident.finding.why}")
    lines += [f"{symptom.severity}: {symptom.message}" for symptom in incident.symptoms]
    lines.append(f"bundle: `{path}`; look: `steadytrain report {shlex.quote(str(path))}`")
    return "\n\n".join(lines)


def incident_files(path: Path, *, tensors: bool) -> tuple[list[Path], list[Path]]:
    """The files of a bundle that are sent and those that stay: tensors only where asked, the smallest files first.

    ``INCIDENT_BYTES_MAX`` bounds what is sent: the state of a large model is for a disk and not for a tracker.
    """
    files = sorted((file for file in path.iterdir() if file.is_file()), key=lambda file: (file.stat().st_size, file))
    sent: list[Path] = []
    room = INCIDENT_BYTES_MAX
    for file in files:
        room -= file.stat().st_size
        if room >= 0 and (tensors or file.suffix != TENSOR_SUFFIX):
            sent.append(file)
    return sorted(sent), sorted(set(files) - set(sent))
