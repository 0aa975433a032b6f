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
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from steadytrain.core.incident import Incident
from steadytrain.core.model import Severity, Symptom
from steadytrain.core.plugin_pages import Pages
from steadytrain.core.plugins import Kind, kebab

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


@dataclass(frozen=True)
class ActiveRun:
    """A run of the script's own.

    Args:
        tool: the name of the tool.
        identity: tells it from the next run of the same tool.
        handle: what the exporter of the tool needs to write into it (see there).
    """

    tool: str
    identity: str
    handle: Any


class Tool(abc.ABC):
    """The contract of an exporter as a plug-in: what is known of a tool before its library is imported, and how a run
    there begins. Subclasses are final and have no state; their class variables are literals, for they are read from
    the source.

    ``requires`` is the module that has to be installed for it, "" where none; ``install`` what pip installs it by.
    ``loaded`` is the module whose being imported says that a script may have a run of its own there; where it is "",
    no such run is looked for. ``signals_every_steps`` is how often the signals of a step are sent.
    """

    requires: ClassVar[str] = ""
    install: ClassVar[str] = ""
    loaded: ClassVar[str] = ""
    signals_every_steps: ClassVar[int] = 1

    @abc.abstractmethod
    def begin(self) -> Exporter:
        """The exporter of a run of our own. Called in a process of its own."""

    def active(self) -> ActiveRun | None:
        """The run that the script has begun itself, None where there is none.

        Called on the training thread every few dozen steps once ``loaded`` is imported, so it only reads what lies
        there: a module's global, a thread-local, the list of threads. It may raise: then there is none.
        """
        return None

    def join(self, handle: Any) -> Exporter:
        """The exporter that writes into the script's own run, whose :class:`ActiveRun` has this ``handle``."""
        raise NotImplementedError


EXPORTERS = Kind("exporter", Tool, "steadytrain.exporters.tools", "steadytrain.exporters", heavy=True)

EXPORTER_PAGES = Pages(
    kind=EXPORTERS,
    noun="exporter",
    key="exporters",
    heading="Exporters of steadytrain run --to",
    schema="steadytrain.exporter-explanation/1",
    document=("name", "summary", "means", "next", "requires", "install", "signals_every_steps"),
    traits=lambda tool: {name: getattr(tool, name) for name in ("requires", "install", "signals_every_steps")},
    closing=lambda page: ["An exporter: `steadytrain run --to NAME` (docs/exporters.md)"],
    headings=("Means", "Next"),
    title="Exporters",
    intro="Where `steadytrain run --to NAME` sends a run (`exporters.md`).",
)


@cache
def known_tools() -> Mapping[str, type[Tool]]:
    """Every exporter by name, described: nothing of it is imported, and it cannot be used yet."""
    return {kebab(cls): cls for cls in EXPORTERS.described()}


@cache
def load_tool(name: str) -> Tool:
    """The exporter called ``name``, imported.

    Raises:
        LookupError: there is none, or it cannot be used here.
    """
    return EXPORTERS.one(name)()


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
