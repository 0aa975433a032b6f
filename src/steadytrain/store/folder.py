"""The run folder: ``run.json``, ``index.sqlite``, ``steps/<stream>/`` and ``incidents/``.

``run.json`` is written when the first step is seen and says what the run is; the SQLite index (WAL mode) holds what
was raised and done: symptoms, incidents, the ledger of actions, and how the run ended. Further training processes
of the same run (other ranks) have a folder of the same shape under ``ranks/``.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from steadytrain.errors import UsageError
from steadytrain.model import Action, Severity, Symptom, Window, worst
from steadytrain.store.bundle import is_bundle, write_json
from steadytrain.store.segments import read_segment, read_stream

RUN_VERSION = 1
RUN_FILE = "run.json"
INDEX_FILE = "index.sqlite"
RUNS_DIR_DEFAULT = "steadytrain-runs"
BUSY_WAIT_S = 2.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS symptoms (
    name TEXT NOT NULL, stream TEXT NOT NULL, first_step INTEGER NOT NULL, last_step INTEGER NOT NULL,
    severity TEXT NOT NULL, document TEXT NOT NULL, PRIMARY KEY (name, stream, first_step));
CREATE TABLE IF NOT EXISTS incidents (path TEXT PRIMARY KEY, step INTEGER NOT NULL, document TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS actions (id INTEGER PRIMARY KEY, step INTEGER NOT NULL, document TEXT NOT NULL);
"""


class RunWriter:
    """The live half's hand on a run folder. Every method may raise ``OSError`` or ``sqlite3.Error``."""

    def __init__(self, path: Path, description: dict[str, Any]) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        write_json(path / RUN_FILE, {"format": "steadytrain.run", "version": RUN_VERSION, **description})
        # The training thread is the only writer, but it may not be the thread that opened the folder.
        self._index = sqlite3.connect(path / INDEX_FILE, timeout=BUSY_WAIT_S, check_same_thread=False)
        self._index.execute("PRAGMA journal_mode=WAL")
        self._index.execute("PRAGMA synchronous=NORMAL")
        with self._index:
            self._index.executescript(_SCHEMA)

    def raise_symptom(self, symptom: Symptom) -> None:
        """Record a symptom; one with the same name, stream and first step is replaced (it has grown)."""
        row = (symptom.name, symptom.stream, symptom.first_step, symptom.last_step, symptom.severity)
        with self._index:
            self._index.execute(
                "INSERT OR REPLACE INTO symptoms VALUES (?, ?, ?, ?, ?, ?)", (*row, json.dumps(symptom.to_json()))
            )

    def add_incident(self, bundle: Path, step: int) -> None:
        name = str(bundle.relative_to(self.path))
        with self._index:
            self._index.execute("INSERT OR REPLACE INTO incidents VALUES (?, ?, ?)", (name, step, "{}"))

    def add_action(self, action: Action) -> None:
        with self._index:
            self._index.execute(
                "INSERT INTO actions (step, document) VALUES (?, ?)", (action.step, json.dumps(action.to_json()))
            )

    def set_fact(self, name: str, value: Any) -> None:
        with self._index:
            self._index.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, json.dumps(value)))

    def close(self) -> None:
        self._index.close()


@dataclass(frozen=True)
class RunSummary:
    """What ``steadytrain runs`` lists: read from the index and ``run.json`` alone."""

    name: str
    path: Path
    started: str
    command: str
    ended: str | None
    steps: int
    worst: Severity | None
    incidents: int


@dataclass(frozen=True)
class RunRecord:
    """A run folder, read: the desk half's view of a run."""

    path: Path
    name: str
    description: dict[str, Any]
    facts: dict[str, Any]
    symptoms: tuple[Symptom, ...]
    incidents: tuple[Path, ...]
    actions: tuple[Action, ...]
    ranks: tuple[Path, ...]

    def streams(self) -> list[str]:
        """The names of the streams of steps, ``main`` first."""
        folder = self.path / "steps"
        names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []
        return sorted(names, key=lambda name: (name != "main", name))

    def window(self, stream: str = "main") -> Window:
        """All whole steps of a stream."""
        return read_stream(self.path / "steps" / stream)

    @property
    def ended(self) -> str | None:
        """How the run ended (``finished``, ``stopped``, ``failed``), None when it did not say."""
        return self.facts.get("ended")


def open_run(path: Path) -> RunRecord:
    """Read a run folder.

    Raises:
        UsageError: not a run folder, damaged, or of a newer format.
    """
    description = _read_description(path)
    with _reading(path) as index:
        facts = {name: json.loads(value) for name, value in index.execute("SELECT name, value FROM facts")}
        symptoms = tuple(
            Symptom.from_json(json.loads(document))
            for (document,) in index.execute("SELECT document FROM symptoms ORDER BY first_step, name")
        )
        incidents = tuple(path / name for (name,) in index.execute("SELECT path FROM incidents ORDER BY step, path"))
        actions = tuple(
            Action.from_json(json.loads(document))
            for (document,) in index.execute("SELECT document FROM actions ORDER BY id")
        )
    ranks = tuple(sorted(entry for entry in (path / "ranks").glob("*") if (entry / RUN_FILE).is_file()))
    return RunRecord(
        path=path,
        name=description.get("name", path.name),
        description=description,
        facts=facts,
        symptoms=symptoms,
        incidents=tuple(bundle for bundle in incidents if bundle.is_dir()),
        actions=actions,
        ranks=ranks,
    )


def list_runs(runs_dir: Path) -> list[RunSummary]:
    """The runs under ``runs_dir``, newest first; folders that are not runs are passed over."""
    if not runs_dir.is_dir():
        raise UsageError(f"{runs_dir}: no such folder of runs; name another with --runs-dir")
    found = []
    for entry in runs_dir.iterdir():
        if not (entry / RUN_FILE).is_file():
            continue
        try:
            run = open_run(entry)
        except UsageError:
            continue
        found.append(
            RunSummary(
                name=run.name,
                path=entry,
                started=run.description.get("started", ""),
                command=" ".join(run.description.get("argv", [])),
                ended=run.ended,
                steps=_last_step(run),
                worst=worst([symptom.severity for symptom in run.symptoms]),
                incidents=len(run.incidents),
            )
        )
    return sorted(found, key=lambda run: (run.started, run.name), reverse=True)


def find(target: str, runs_dir: Path) -> Path:
    """The run folder or bundle that ``target`` names: a path, or the name of a run under ``runs_dir``."""
    for path in (Path(target), runs_dir / target):
        if (path / RUN_FILE).is_file() or is_bundle(path):
            return path
    if Path(target).exists():
        raise UsageError(f"{target}: neither a run folder (no {RUN_FILE}) nor an incident bundle (no manifest.json)")
    raise UsageError(f"{target}: no such run or incident, here or under {runs_dir}; `steadytrain runs` lists the runs")


def newest(runs_dir: Path) -> Path:
    """The run that started last."""
    runs = list_runs(runs_dir) if runs_dir.is_dir() else []
    if not runs:
        raise UsageError(f"{runs_dir}: no runs here yet; record one with `steadytrain run SCRIPT`")
    return runs[0].path


def newest_incident(path: Path, runs_dir: Path) -> Path:
    """``path`` itself when it is a bundle, else the last incident of the run there."""
    if is_bundle(path):
        return path
    incidents = open_run(path).incidents
    if not incidents:
        raise UsageError(f"{path}: this run has no incident; `steadytrain show {path}` tells what it has")
    return incidents[-1]


def _read_description(path: Path) -> dict[str, Any]:
    try:
        description = json.loads((path / RUN_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path}: not a run folder (no {RUN_FILE})") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path / RUN_FILE}: not readable ({error})") from None
    if not isinstance(description, dict) or description.get("format") != "steadytrain.run":
        raise UsageError(f"{path / RUN_FILE}: not that of a steadytrain run")
    version = description.get("version")
    if not isinstance(version, int) or version > RUN_VERSION:
        raise UsageError(
            f"{path}: run folder format version {version} is newer than this steadytrain reads ({RUN_VERSION}); "
            "upgrade steadytrain"
        )
    return description


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    """The index opened for reading, also on a read-only disk; a missing one reads as an empty one."""
    file = path / INDEX_FILE
    if not file.is_file():
        with closing(sqlite3.connect(":memory:")) as empty:
            empty.executescript(_SCHEMA)
            yield empty
        return
    address = f"file:{quote(str(file.absolute()))}?mode=ro"
    for suffix in ("", "&immutable=1"):
        try:
            with closing(sqlite3.connect(address + suffix, uri=True, timeout=BUSY_WAIT_S)) as index:
                index.execute("SELECT count(*) FROM facts")
                yield index
                return
        except sqlite3.OperationalError as error:
            failure: sqlite3.Error = error
        except sqlite3.DatabaseError as error:
            failure = error
            break
    raise UsageError(f"{file}: the index cannot be read ({failure}); the run folder is damaged")


def _last_step(run: RunRecord) -> int:
    """The last step that is whole in the main stream, from the newest segment only."""
    streams = run.streams()
    if not streams:
        return 0
    for path in sorted((run.path / "steps" / streams[0]).glob("*.steps"), reverse=True):
        window = read_segment(path)
        if len(window):
            return int(window.steps[-1])
    return 0
