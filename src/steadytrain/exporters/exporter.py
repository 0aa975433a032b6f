"""The contract of an exporter, which writes a run into another tool, and the values that it receives.

An exporter runs on its own thread (``exporter_queue.py``) or in its own process (``exporter_process.py``), never on the
training thread. It may raise or be slow without affecting the run. ``sent_values.py`` selects what is sent and how
often, so an exporter contains only the code for its tool. Torch-free.
"""

from __future__ import annotations

import abc
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from steadytrain.core.incident import Action, Incident
from steadytrain.core.model import Severity, Symptom
from steadytrain.core.plugin_pages import Pages
from steadytrain.core.plugins import Kind, kebab
from steadytrain.report.wording import clean

PREFIX = "steadytrain/"
"""Prefix of our names in a run that belongs to the script."""

SEVERITY_LEVELS: Mapping[Severity, int] = {"note": 1, "warning": 2, "critical": 3}
"""The severity of a symptom as the value of its marker."""


COVERED_SHARE = 0.999
"""A histogram over the values reaches so far: the largest element alone would squeeze all others into one bin."""

HOST_PORT, HTTP_URL, TRACKER, MILLISECONDS = "host-port", "http-url", "tracker", "milliseconds"
"""Forms of a variable with an address. ``tracker`` is the URL of a server, of a database or a folder."""

INCIDENT_BYTES_MAX = 64 << 20
TENSOR_SUFFIX = ".safetensors"


@dataclass(frozen=True)
class Run:
    """The run as an exporter sees it. ``facts`` are redacted JSON; ``named`` is True if the user named this tool.

    A run that was only found active receives numbers and documents. Tensors of incidents, which may be large and
    contain training data, go only to tools that the user named.
    """

    name: str
    folder: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    named: bool = True


@dataclass(frozen=True)
class Row:
    """Values of one step. A ``rare`` row (a table, a marker) stays valuable when newer rows arrive."""

    step: int
    time: float
    values: Mapping[str, float]
    rare: bool = False


@dataclass(frozen=True)
class Histogram:
    """Distribution of a tensor's elements over powers of two, as shares of all elements.

    ``shares[i]`` have a magnitude in ``[2**(first + i), 2**(first + i + 1))``. ``below`` and ``above`` are finite and
    outside this range. ``positive`` has the positive part of ``below``, the shares and ``above``; None if the sign was
    not measured.
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
    positive: Sequence[float] | None = None

    @property
    def bars(self) -> list[float]:
        """The heights to draw: zeros, ``below``, the shares, ``above``. ``edges`` gives the powers of two.

        Zeros have no power of two, so their bar starts two below the first, and ``below`` has the bar in between.
        """
        return [self.zero, self.below, *self.shares, self.above]

    @property
    def edges(self) -> list[int]:
        """The left edges of the bars and, last, the right edge of the last one."""
        return [self.first - 2 + position for position in range(len(self.shares) + 4)]

    @property
    def positive_share(self) -> float | None:
        """The positive elements as a share of those that are finite and not zero, None if unknown."""
        total = sum(self.bars) - self.zero
        return sum(self.positive) / total if self.positive is not None and total > 0 else None

    def signed(self, count: int) -> tuple[list[float], list[float]] | None:
        """Heights and edges of ``count`` bins (even) of one width over the values themselves, None without a sign.

        They reach as far as ``COVERED_SHARE`` of the finite elements; what is outside is in the outermost bins. Within
        a power of two the elements are taken as evenly spread.
        """
        if self.positive is None or not any(self.bars[1:]):
            return None
        sizes = self.bars[1:]
        edges = [0.0, *(2.0**edge for edge in self.edges[2:])]
        bound = self._bound(sizes, edges)
        heights = [0.0] * count
        half, width = count // 2, 2 * bound / count
        for size, positive, low, high in zip(sizes, self.positive, edges, edges[1:], strict=False):
            positive = min(size, positive)  # a sample may have more of them
            for share, side in ((positive, 1), (size - positive, -1)):
                first, last = min(low / width, half - 1.0), min(high / width, float(half))
                for at in range(int(first), max(int(first) + 1, math.ceil(last))):
                    inside = (min(at + 1.0, last) - max(float(at), first)) / (last - first) if last > first else 1.0
                    heights[half + at if side > 0 else half - 1 - at] += share * inside
        heights[half - 1] += self.zero / 2
        heights[half] += self.zero / 2
        return heights, [width * (at - half) for at in range(count + 1)]

    def _bound(self, sizes: Sequence[float], edges: Sequence[float]) -> float:
        """The power of two below which ``COVERED_SHARE`` of the finite elements are."""
        seen, total = self.zero, sum(sizes) + self.zero
        for size, high in zip(sizes, edges[1:], strict=False):
            seen += size
            if seen >= COVERED_SHARE * total:
                return high
        return edges[-1]

    def quantiles(self, wanted: Sequence[float]) -> dict[float, float]:
        """The quantiles of the magnitudes at these shares, as powers of two. Ignores NaN and Inf.

        For tools that draw no histogram. ``wanted`` rises.
        """
        found: dict[float, float] = {}
        total, seen = sum(self.bars), 0.0
        waiting = list(wanted)
        for left, bar in zip(self.edges, self.bars, strict=False):
            while waiting and bar and seen + bar >= waiting[0] * total:
                share = waiting.pop(0)
                found[share] = left + (share * total - seen) / bar
            seen += bar
        return found


@dataclass(frozen=True)
class Document:
    """What was concluded about a run: a ``diagnosis``, a ``page``, the ``ledger``, an ``incident`` in words.

    ``name`` is that of the bundle, or of the run. ``text`` is redacted, and short for a page; ``files`` are paths of
    files that a tool that takes files gets.
    """

    kind: str
    name: str
    step: int
    text: str
    files: Sequence[str] = ()


class ExporterError(Exception):
    """A write failed. The text contains all that the user needs to know."""


class ExporterGoneError(ExporterError):
    """No further write is possible."""


class Exporter(abc.ABC):
    """Writes one run into one tool. One thread calls ``open``, then any other methods, then ``close``."""

    @abc.abstractmethod
    def open(self, run: Run) -> None:
        """Start or find the run in the tool."""

    @abc.abstractmethod
    def scalars(self, row: Row) -> None:
        """Write the values of one step."""

    @abc.abstractmethod
    def histogram(self, histogram: Histogram) -> None:
        """Write one histogram in the form that the tool can draw."""

    @abc.abstractmethod
    def symptom(self, symptom: Symptom) -> None:
        """Mark the step at which a symptom was raised."""

    @abc.abstractmethod
    def incident(self, path: Path, incident: Incident) -> None:
        """Store an incident, or its path."""

    def action(self, action: Action) -> None:  # noqa: B027 (an exporter for which nothing is done live has no place for it)
        """Write an entry of the ledger: what steadytrain did to the run."""

    def failed(self, why: str) -> None:  # noqa: B027 (most tools have no place for it)
        """What ended the script, in one line, if it did not end normally. Called before ``close``."""

    @abc.abstractmethod
    def flush(self) -> None:
        """Write out the batch that was handed over."""

    def idle(self) -> None:  # noqa: B027 (most exporters hear of a failure where it happens)
        """Nothing was handed over for a while."""

    @abc.abstractmethod
    def close(self, ended: str) -> None:
        """End the run. A run that belongs to the script stays open."""

    def place(self) -> Mapping[str, str] | None:
        """How the run is found there again after its end, with ``tool``; None if it need not be. Holds no secret."""
        return None

    def let_go(self) -> None:  # noqa: B027 (most exporters have nothing to let go of)
        """Stop waiting. Called from another thread while ``close`` or another method may hang."""

    def forget(self) -> None:  # noqa: B027 (most exporters have inherited nothing)
        """In a forked child: release inherited resources, and do nothing else."""


@dataclass(frozen=True)
class ActiveRun:
    """A run that the script started.

    Args:
        tool: the name of the tool.
        identity: distinguishes it from the tool's next run.
        handle: what the tool's exporter needs to write into it (see there).
    """

    tool: str
    identity: str
    handle: Any


class DocumentStore(abc.ABC):
    """Takes documents of a run that is over, in a process that does nothing else."""

    @abc.abstractmethod
    def keep(self, document: Document) -> None:
        """Store one document."""

    @abc.abstractmethod
    def close(self) -> str:
        """Write out everything, and say in a few words where it is."""


class Tool(abc.ABC):
    """The contract of an exporter plug-in: the facts about a tool before its library is imported, and how a run there
    starts. Subclasses are final and have no state. Their class variables are literals, because they are read from
    the source.

    ``requires`` is the module that must be installed, "" if none; ``install`` is its name for pip. ``loaded`` is a
    module whose import shows that the script may have its own run there; if it is "", steadytrain does not look for
    such a run. ``signals_every_steps`` is how often a step's signals are sent, ``keeps_documents`` whether `steadytrain
    export` can send there. ``addresses`` has the environment variables that say where, each with its form, such as
    ``http-url``: a malformed one is refused before the script starts.
    """

    requires: ClassVar[str] = ""
    install: ClassVar[str] = ""
    loaded: ClassVar[str] = ""
    signals_every_steps: ClassVar[int] = 1
    keeps_documents: ClassVar[bool] = False
    addresses: ClassVar[Mapping[str, str]] = {}

    @abc.abstractmethod
    def begin(self) -> Exporter:
        """The exporter of our own run. Called in its own process."""

    def active(self) -> ActiveRun | None:
        """The run that the script started, None if there is none.

        Called on the training thread every few dozen steps once ``loaded`` is imported, so it only reads existing
        state: a module's global, a thread-local, the list of threads. An exception counts as None.
        """
        return None

    def join(self, handle: Any) -> Exporter:
        """The exporter for the script's own run whose :class:`ActiveRun` has this ``handle``."""
        raise NotImplementedError

    def documents(self, run: Run, place: Mapping[str, str] | None) -> DocumentStore:
        """Where the documents of a run go that is over. ``place`` is that of its exporter, None if the run never went
        there. Called where ``keeps_documents``."""
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
    """The description of every exporter by name. Imports none of them, so they cannot be used yet."""
    return {kebab(cls): cls for cls in EXPORTERS.described()}


@cache
def load_tool(name: str) -> Tool:
    """Import the exporter called ``name``.

    Raises:
        LookupError: there is none, or it cannot be used here.
    """
    return EXPORTERS.one(name)()


def symptom_text(symptom: Symptom) -> str:
    """A symptom in one line: severity, step, message."""
    return clean(f"{symptom.severity}, step {symptom.first_step}: {symptom.message}")


def action_text(action: Action) -> str:
    """An entry of the ledger in one line: what was done, to what, and why."""
    numbers = ", ".join(f"{name} {value:.4g}" for name, value in action.after.items())
    done = " ".join(filter(None, [action.what, action.intervention, f"({numbers})" if numbers else ""]))
    return clean(f"step {action.step}: {done}: {action.reason}")


def incident_text(path: Path, incident: Incident) -> str:
    """An incident in a few lines: when, why, the first bad operation, the action, the path."""
    lines = [f"step {incident.step}: {incident.action.reason} ({incident.action.what})"]
    located = incident.finding.located
    if located is not None:
        where = f", {located.file}:{located.line}: {located.code}" if located.file else ""
        lines.append(f"first bad operation: {located.operation_said} ({located.phase}, gave {located.produced}){where}")
    else:
        lines.append(f"first bad operation: not named: {incident.finding.why}")
    lines += [f"{symptom.severity}: {symptom.message}" for symptom in incident.symptoms]
    lines += [f"bundle: {path}", f"look: steadytrain report {shlex.quote(str(path))}"]
    return "\n".join(map(clean, lines))


def as_block(text: str) -> str:
    """``text`` for a place that shows Markdown: an indented block, in which nothing is markup, no link and no image."""
    return "\n".join(f"    {clean(line)}" for line in text.splitlines())


def incident_files(path: Path, *, tensors: bool) -> tuple[list[Path], list[Path]]:
    """The bundle files that are sent and those that are not. Sends tensors only if requested, smallest files first.

    ``INCIDENT_BYTES_MAX`` bounds the total: the state of a large model belongs on disk, not in a tracker.
    """
    inside = (file for file in path.iterdir() if file.is_file() and not file.is_symlink())
    files = sorted(inside, key=lambda file: (file.stat().st_size, file))
    sent: list[Path] = []
    room = INCIDENT_BYTES_MAX
    for file in files:
        room -= file.stat().st_size
        if room >= 0 and (tensors or file.suffix != TENSOR_SUFFIX):
            sent.append(file)
    return sorted(sent), sorted(set(files) - set(sent))
