"""The run folder: ``run.json``, ``index.sqlite``, ``steps/<stream>/``, ``tables/<stream>/<table>/``, ``incidents/``.

``run.json`` is written at the first step and describes the run. The SQLite index (WAL mode) holds symptoms, incidents,
the ledger of actions, and how the run ended. Other training processes of the same run (other ranks) have folders of the
same layout under ``ranks/``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadytrain.core.bounded_files import DOCUMENT_BYTES_MAX, read_json
from steadytrain.core.errors import UsageError, refuse_newer
from steadytrain.core.incident import Action, Incident
from steadytrain.core.model import SEVERITIES, Series, Symptom, Table, Window
from steadytrain.core.notebook import Drawing, as_card, curves_of
from steadytrain.core.own_errors import own, unless_it_fails
from steadytrain.storage import data_frames
from steadytrain.storage.bundle import MANIFEST, open_for_report
from steadytrain.storage.documents import as_json
from steadytrain.storage.index_reading import entries, open_index
from steadytrain.storage.left_overs import clear_left_overs, ended_or_state, mark_of_process, write_first
from steadytrain.storage.origin import with_origin
from steadytrain.storage.processes import process_mark
from steadytrain.storage.redaction import redact_text
from steadytrain.storage.run_index import INDEX_FILE, SCHEMA, RunIndex
from steadytrain.storage.segments import count_records, read_scalars, read_stream, with_gradient_norms
from steadytrain.storage.staged_bundle import INCIDENTS_FOLDER, clear_siblings, step_and_name
from steadytrain.storage.stopped_recording import read_stopped, write_stopped
from steadytrain.storage.tables import read_readable, read_series, read_table

if TYPE_CHECKING:
    import pandas
    import pyarrow

RUN_VERSION = 2
"""Version 2 stores gradient norms in a table, and allows thinned and merged parts. Version 1 can still be read."""

RUN_FILE = "run.json"
RANKS_FOLDER = "ranks"
BUSY_WAIT_S = 2.0
NOTABLE_STEPS_MAX = 256


class RunWriter:
    """Writes a run folder for the live half. Every method may raise ``OSError`` or ``sqlite3.Error``."""

    def __init__(self, path: Path, description: dict[str, Any]) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        clear_siblings(path.parent)
        clear_left_overs(path.parent)
        mark = process_mark()
        description = mark_of_process() | with_origin(description)
        document = {"format": "steadytrain.run", "version": RUN_VERSION, **description}
        text = as_json(document, indent=1, ensure_ascii=False, allow_nan=False)
        write_first(path / RUN_FILE, mark, text + "\n")
        self._index = RunIndex(path / INDEX_FILE, SCHEMA, busy_s=BUSY_WAIT_S)
        self._stopped: tuple[int | None, str] | None = None

    def raise_symptom(self, symptom: Symptom) -> None:
        """Record a symptom. Replaces an earlier one with the same name, stream and first step."""
        row = (redact_text(symptom.name), redact_text(symptom.stream), symptom.first_step, symptom.last_step)
        self._index.execute(
            "INSERT OR REPLACE INTO symptoms VALUES (?, ?, ?, ?, ?, ?)",
            (*row, symptom.severity, as_json(symptom.to_json())),
        )

    def add_incident(self, bundle: Path, step: int) -> None:
        name = str(bundle.relative_to(self.path))
        self._index.execute("INSERT OR REPLACE INTO incidents VALUES (?, ?, ?)", (name, step, "{}"))

    def add_action(self, action: Action) -> None:
        values = (action.step, as_json(action.to_json()))
        self._index.execute("INSERT INTO actions (step, document) VALUES (?, ?)", values)

    def set_fact(self, name: str, value: Any) -> None:
        values = (redact_text(name), as_json(value, name=name))
        self._index.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", values)

    def stop(self, step: int | None, why: str) -> None:
        """Note that nothing more is recorded from ``step`` on; at the end again, if the disk had no room for a file."""
        self._stopped = step, why
        write_stopped(self.path, step=step, why=why)

    def close(self) -> None:
        self._index.close()
        if self._stopped is not None and read_stopped(self.path) is None:  # the index has given its files back
            self.stop(*self._stopped)


@dataclass(frozen=True)
class Run:
    """A run folder, opened for reading.

    Steps and tables are read from disk on demand. Signals are float64 of shape ``(steps,)``, tables float32 of shape
    ``(readings, rows, columns)``.

    Examples:
        >>> run = steadytrain.load_run("runs/stopped")
        >>> run.ended, run.scalars().steps.tolist()
        ('stopped', [1, 2, 3, 4])
        >>> [incident.finding.located.operation for incident in run.open_incidents()]
        ['aten.log.default']
    """

    path: Path
    name: str
    description: dict[str, Any]
    facts: dict[str, Any]
    symptoms: tuple[Symptom, ...]
    incidents: tuple[Path, ...]
    actions: tuple[Action, ...]
    ranks: tuple[Path, ...]

    def __repr__(self) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self._facts().items())
        return f"<Run {self.name!r}: {facts}>"

    def _repr_html_(self) -> str:
        return as_card(self, f"Run {self.name}", {**self._facts(), "command": self.command, "folder": self.path})

    def plot(self, stream: str = "main") -> Drawing:
        """Loss, gradient norm and learning rate of a stream with its symptoms, for a notebook."""
        return curves_of(self, stream)

    def _facts(self) -> dict[str, str]:
        gravest_first = sorted(self.symptoms, key=lambda symptom: -SEVERITIES.index(symptom.severity))
        return {
            "steps": f"{self.steps:,}",
            "ended": self.state,
            "symptoms": ", ".join(dict.fromkeys(symptom.name for symptom in gravest_first)) or "none",
            "incidents": f"{len(self.incidents)}",
        }

    @property
    def steps(self) -> int:
        """Number of steps in the first stream, computed from file sizes without reading a step."""
        return steps_of(self.path)

    @property
    def command(self) -> str:
        """The command line of the run, without the interpreter."""
        argv = self.description.get("argv")
        return " ".join(map(str, argv)) if isinstance(argv, list) else ""

    def open_incidents(self) -> tuple[Incident, ...]:
        """Read and verify the incidents of the run.

        Raises:
            UsageError: a bundle is damaged.
        """
        return tuple(open_for_report(path).incident for path in self.incidents)

    def streams(self) -> list[str]:
        """The names of the step streams, ``main`` first."""
        return _stream_names(self.path / "steps")

    def window(self, stream: str = "main") -> Window:
        """All complete steps of a stream, with the gradient norms that were kept."""
        window = read_stream(self.path / "steps" / stream)
        if "gradients" not in self.tables(stream):
            return window
        # Older steps may be Parquet. Without pyarrow their norms are missing, as if thinned away.
        return with_gradient_norms(window, read_readable(self.path / "tables" / stream / "gradients"))

    def scalars(self, stream: str = "main") -> Window:
        """All complete steps of a stream without their tensors, which may be far larger."""
        return read_scalars(self.path / "steps" / stream)

    def tables(self, stream: str = "main") -> list[str]:
        """The names of the stream's tables."""
        if stream not in _stream_names(self.path / "tables"):
            return []
        return _stream_names(self.path / "tables" / stream)

    def table(self, name: str, stream: str = "main") -> Table:
        """All complete readings of a table.

        Raises:
            UsageError: the stream has no such table, or it is damaged.
        """
        return read_table(self._table_folder(name, stream))

    def series(self, name: str, row: str, column: str, stream: str = "main") -> Series:
        """One cell of a table over the steps, without loading the whole table.

        Raises:
            UsageError: the stream has no such table or cell, or it is damaged.
        """
        return read_series(self._table_folder(name, stream), row, column)

    def to_pandas(self, table: str = "steps", *, stream: str = "main") -> pandas.DataFrame:
        """The steps or a table in long form, with NaN for values that were not measured.

        Raises:
            UsageError: the table does not exist, or pandas is missing (or pyarrow, if older steps are Parquet).
        """
        if table == data_frames.STEPS:
            return data_frames.steps_to_pandas(self.scalars(stream))
        return data_frames.table_to_pandas(self.table(table, stream))

    def to_arrow(self, table: str = "steps", *, stream: str = "main") -> pyarrow.Table:
        """The steps or a table in long form, with null for values that were not measured.

        Raises:
            UsageError: the table does not exist, or pyarrow is missing.
        """
        if table == data_frames.STEPS:
            return data_frames.steps_to_arrow(self.scalars(stream))
        return data_frames.table_to_arrow(self.table(table, stream))

    def _table_folder(self, name: str, stream: str) -> Path:
        if name not in self.tables(stream):
            known = ", ".join(self.tables(stream)) or "none"
            raise UsageError(f"{self.path}: the stream {stream!r} has no table {name!r}; it has: {known}")
        return self.path / "tables" / stream / name

    @property
    def ended(self) -> str | None:
        """How the run ended (``finished``, ``stopped``, ``failed``), None if that was not recorded."""
        ended = self.facts.get("ended")
        return ended if isinstance(ended, str) else None

    @property
    def state(self) -> str:
        """How the run ended, or ``running``, ``killed``, or ``not recorded`` if its process cannot be looked up."""
        return ended_or_state(self.ended, self.description, self.path)


def open_run(path: Path) -> Run:
    """Read a run folder.

    Raises:
        UsageError: not a run folder, damaged, or of a newer format.
    """
    description = read_description(path)
    with open_index(path) as index:
        facts = {name: json.loads(value) for name, value in entries(index, "SELECT name, value FROM facts")}
        symptoms = tuple(
            Symptom.from_json(json.loads(document))
            for (document,) in entries(index, "SELECT document FROM symptoms ORDER BY first_step, name")
        )
        bundles = [name for (name,) in entries(index, "SELECT path FROM incidents ORDER BY step, path")]
        actions = tuple(
            Action.from_json(json.loads(document))
            for (document,) in entries(index, "SELECT document FROM actions ORDER BY id")
        )
    others = _recorded(path / RANKS_FOLDER) or _beside(path)
    return Run(
        path=path,
        name=str(description.get("name") or path.absolute().name),
        description=description,
        facts=facts,
        symptoms=symptoms,
        incidents=bundles_inside(path, bundles),
        actions=actions,
        ranks=tuple(others),
    )


def part_of_run(folder: Path) -> Path | None:
    """The first recorded rank of a folder that rank 0 did not record in: ranks of another machine, of a run whose
    folder is not shared. None if it is not one."""
    recorded = [] if os.path.isfile(folder / RUN_FILE) else _recorded(folder / RANKS_FOLDER)
    return recorded[0] if recorded else None


def _beside(path: Path) -> list[Path]:
    """The other ranks, if ``path`` stands for a part of a run (see :func:`part_of_run`)."""
    if path.absolute().parent.name != RANKS_FOLDER:
        return []
    first = part_of_run(path.parent.parent)
    return [one for one in _recorded(path.parent) if one != path] if first == path else []


def _recorded(ranks: Path) -> list[Path]:
    """The folders of ranks that have a run file; none where nothing can be read."""
    try:
        with os.scandir(ranks) as entries:
            return sorted(ranks / one.name for one in entries if os.path.isfile(f"{one.path}/{RUN_FILE}"))
    except own(OSError):
        return []


def notable_steps(path: Path, stream: str) -> list[int]:
    """Steps of a stream that retention keeps in full, the most important first.

    Incidents come first, then onsets of symptoms by severity, then their ends.
    """
    with open_index(path) as index:
        incidents = [step for (step,) in index.execute("SELECT step FROM incidents ORDER BY step")]
        symptoms = index.execute(
            "SELECT severity, first_step, last_step FROM symptoms WHERE stream = ? ORDER BY first_step", (stream,)
        ).fetchall()
    symptoms.sort(key=lambda symptom: -SEVERITIES.index(symptom[0]))
    steps = [*incidents, *(first for _, first, _ in symptoms), *(last for *_, last in symptoms)]
    return list(dict.fromkeys(steps))[:NOTABLE_STEPS_MAX]


def steps_of(path: Path) -> int:
    """Number of steps in the first stream of a run folder, from file sizes."""
    steps = os.path.join(path, "steps")
    names = _stream_names(steps)
    return count_records(Path(steps, names[0])) if names else 0


def bundles_inside(path: Path, names: Sequence[str]) -> tuple[Path, ...]:
    """The bundles of a run folder that exist and lie in it after resolving links: an index may come from a stranger.

    Those that a killed process could not list any more are among them, in the order of their steps.
    """
    listed = [path / name for name in names]
    with unless_it_fails(OSError):
        known = set(names)  # plain names first: paths of thousands of runs take seconds
        there = (name for name in os.listdir(os.path.join(path, INCIDENTS_FOLDER)) if name[:1] != ".")
        others = (path / INCIDENTS_FOLDER / name for name in there if f"{INCIDENTS_FOLDER}/{name}" not in known)
        unlisted = [bundle for bundle in others if bundle not in listed and (bundle / MANIFEST).is_file()]
        if unlisted:
            listed = sorted([*listed, *unlisted], key=step_and_name)
    return tuple(bundle for bundle in listed if bundle.is_dir() and _lies_inside(bundle, path))


def _lies_inside(bundle: Path, folder: Path) -> bool:
    parts = bundle.parts[len(folder.parts) :]
    if bundle.parts[: len(folder.parts)] == folder.parts and ".." not in parts:
        between = [str(folder)]
        for part in parts:
            between.append(f"{between[-1]}/{part}")
        if not any(map(os.path.islink, between[1:])):  # resolving both takes five times as long
            return True
    return bundle.resolve().is_relative_to(folder.resolve())


def description_started(description: dict[str, Any]) -> str:
    """When a run started, empty if that is not known."""
    return str(description.get("started") or "")


def read_description(path: Path) -> dict[str, Any]:
    try:
        description = read_json(os.path.join(path, RUN_FILE), bytes_max=DOCUMENT_BYTES_MAX)
    except FileNotFoundError:
        raise UsageError(f"{path}: not a run folder (no {RUN_FILE})") from None
    except own(OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path / RUN_FILE}: not readable ({error})") from None
    return checked_description(description, path)


def checked_description(description: Any, path: Path) -> dict[str, Any]:
    """The document ``run.json`` of the run folder ``path``.

    Raises:
        UsageError: it is none, or of a newer format.
    """
    if not isinstance(description, dict) or description.get("format") != "steadytrain.run":
        raise UsageError(f"{path / RUN_FILE}: not that of a steadytrain run")
    refuse_newer(path, description.get("version"), RUN_VERSION, what="run folder")
    return description


def _stream_names(folder: Path | str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(names, key=lambda name: (name != "main", name))
