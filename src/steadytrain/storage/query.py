"""SQL over runs: DuckDB in memory, with a relation for the steps, each table, the symptoms and the actions.

Tables are views of Parquet files. Raw records, which hold the newest steps, are first written to Parquet in a temporary
folder. Steps and the relations from the index are copied. Relations that the query does not name stay empty. A query
works on a run in progress and never writes to a run folder.

The statement may come from a stranger, just as the run may. It must be one SELECT. DuckDB may open only the Parquet
files of the views and loads no extension, and the statement cannot change these settings.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from steadytrain.core.errors import UsageError
from steadytrain.core.extras import install
from steadytrain.core.model import TABLES
from steadytrain.storage.bundle import open_for_report
from steadytrain.storage.columnar import KEYS, ColumnarPart, column_name, fits, write_columnar
from steadytrain.storage.compaction import Selection
from steadytrain.storage.data_frames import import_pyarrow, steps_to_arrow
from steadytrain.storage.numbered_files import LISTINGS_MAX, Part, list_parts
from steadytrain.storage.query_bounds import Bounds, Deadline, interruptible, settings
from steadytrain.storage.run_folder import Run, open_run
from steadytrain.storage.segments import window_of
from steadytrain.storage.tables import SUFFIXES, absent, open_part, open_whole

RUNS_MAX = 1_000
ROWS_AT_ONCE = 10_000
MESSAGE_LENGTH_MAX = 400

_SETTINGS: dict[str, Any] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}
_BOOKS = ("runs", "facts", "symptoms", "incidents", "actions")


@dataclass(frozen=True)
class Column:
    """A column of an answer, with its DuckDB type."""

    name: str
    type: str


@dataclass(frozen=True)
class Answer:
    """The columns of an answer, and an iterator over its rows."""

    columns: tuple[Column, ...]
    rows: Iterator[tuple[Any, ...]]


@dataclass(frozen=True)
class Source:
    """A run folder as the views name it. Further processes of a run have its name and their own rank."""

    run: str
    rank: int
    record: Run


@contextmanager
def ask(runs: Sequence[Run], sql: str, bounds: Bounds | None = None) -> Iterator[Answer]:
    """Answer one SELECT over ``runs``, within ``bounds``.

    Raises:
        UsageError: duckdb or pyarrow is missing, the statement is not a SELECT or fails or takes too long or too much
            memory, or a run cannot be read.
    """
    bounds = bounds or Bounds()
    if find_spec("duckdb") is None:
        raise UsageError(f"queries need duckdb, which is not installed here; {install('query')}")
    import_pyarrow()
    import duckdb

    if len(runs) > RUNS_MAX:
        raise UsageError(f"{len(runs)} runs at once; at most {RUNS_MAX}")
    try:
        with tempfile.TemporaryDirectory(prefix="steadytrain-query-") as folder:
            deadline = Deadline(bounds.seconds)
            connection, result = _execute(_sources(runs), sql, Path(folder), bounds=bounds, deadline=deadline)
            with connection:
                columns = tuple(Column(name, str(kind)) for name, kind, *_ in result.description or ())
                yield Answer(columns, _rows(connection, result, deadline))
    except (duckdb.OutOfMemoryException, MemoryError):
        size = f"{bounds.memory / 2**30:.3g} GiB"
        raise UsageError(
            f"the query needs more than {size} of memory; ask for less, or give it more: --memory"
        ) from None
    except duckdb.Error as error:
        raise UsageError(_line(error)) from None


def _execute(
    sources: Sequence[Source], sql: str, folder: Path, *, bounds: Bounds, deadline: Deadline
) -> tuple[Any, Any]:
    """A connection with its views, and the result. Tries again if files were replaced before they were read."""
    import duckdb

    for _ in range(LISTINGS_MAX):
        connection = duckdb.connect(":memory:", config={**_SETTINGS, **settings(bounds, folder)})
        try:
            _check(connection, sql)
            files = _make_views(connection, sources, sql, folder)
            _lock(connection, files)
            return connection, interruptible(connection, partial(connection.execute, sql), deadline)
        except (FileNotFoundError, duckdb.IOException) as error:
            connection.close()
            last = error
        except BaseException:
            connection.close()
            raise
    raise UsageError(f"the run's files change faster than they can be read ({_line(last)}); try again")


def _check(connection: Any, sql: str) -> None:
    import duckdb

    statements = connection.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        what = ", ".join(str(statement.type).rpartition(".")[2] for statement in statements) or "nothing"
        raise UsageError(f"{sql[:80]!r}: a query is one SELECT (or DESCRIBE, SHOW, SUMMARIZE), not {what}")


def _lock(connection: Any, files: Sequence[Path]) -> None:
    """Restrict the connection: only ``files`` can be opened from here on, and no setting can change."""
    connection.execute(f"SET allowed_paths = [{', '.join(_text(str(file)) for file in files)}]")
    for setting in ("enable_external_access = false", "lock_configuration = true"):
        connection.execute(f"SET {setting}")


def _rows(connection: Any, result: Any, deadline: Deadline) -> Iterator[tuple[Any, ...]]:
    while rows := interruptible(connection, lambda: result.fetchmany(ROWS_AT_ONCE), deadline):
        yield from rows


# Views.


def _make_views(connection: Any, sources: Sequence[Source], sql: str, folder: Path) -> list[Path]:
    """Make every view and return the files that they read. Relations that ``sql`` does not name stay empty."""
    named = {word.lower() for word in re.findall(r"\w+", sql)}
    pa = import_pyarrow()
    books = _books(sources if named & set(_BOOKS) else [])
    for name in _BOOKS:
        with _registered(connection, pa.Table.from_pylist(books[name], schema=_book_schema(name))) as source:
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM {source}")
    _make_steps(connection, sources if "steps" in named else [])
    files: list[Path] = []
    for table in _table_names(sources):
        files += _table_view(connection, sources, table, folder, is_named=table.lower() in named)
    return files


def _table_names(sources: Sequence[Source]) -> list[str]:
    """The tables that get a view. Names must differ by more than case, because SQL ignores case."""
    taken = {"steps", *_BOOKS}
    names = []
    for table in sorted({table for source in sources for _, table in _tables(source)} | set(TABLES)):
        if table.lower() not in taken:
            taken.add(table.lower())
            names.append(table)
    return names


def _make_steps(connection: Any, sources: Sequence[Source]) -> None:
    """The steps of all streams, copied because they are in our own record format."""
    none = steps_to_arrow(window_of([], ()))
    with _registered(connection, none) as empty:
        connection.execute(f"CREATE TABLE steps AS SELECT '' AS run, 0 AS rank, '' AS stream, * FROM {empty}")
    for source in sources:
        for stream in source.record.streams():
            with _registered(connection, steps_to_arrow(source.record.scalars(stream))) as steps:
                connection.execute(f"INSERT INTO steps BY NAME SELECT {_origin(source, stream)}, * FROM {steps}")


@contextmanager
def _registered(connection: Any, table: Any) -> Iterator[str]:
    """Register an Arrow table under a name while it is copied."""
    connection.register("arrow_table", table)
    try:
        yield "arrow_table"
    finally:
        connection.unregister("arrow_table")


def _table_view(connection: Any, sources: Sequence[Source], table: str, folder: Path, *, is_named: bool) -> list[Path]:
    """The view of one table over all runs and streams."""
    selects: list[str] = []
    files: list[Path] = []
    for source in sources:
        for stream, name in _tables(source):
            if name != table:
                continue
            columns, paths = _table_files(source.record.path / "tables" / stream / table, folder, is_named=is_named)
            files += paths
            listed = ", ".join(_text(str(path)) for path in paths)
            relation = f"read_parquet([{listed}], union_by_name = true)" if paths else _no_cells(columns)
            cells = ", ".join(_cell(column, table) for column in columns)
            keys = f"{_origin(source, stream)}, {', '.join(KEYS)}"
            selects.append(f"SELECT {keys}{', ' if cells else ''}{cells} FROM {relation}")
    if not selects:
        selects = [f"SELECT '' AS run, 0 AS rank, '' AS stream, {', '.join(KEYS)} FROM {_no_cells(())}"]
    connection.execute(f"CREATE VIEW {_name(table)} AS {' UNION ALL BY NAME '.join(selects)}")
    return files


def _table_files(table: Path, folder: Path, *, is_named: bool) -> tuple[tuple[str, ...], list[Path]]:
    """Columns and Parquet files of one table. Raw parts are first written to ``folder`` as Parquet."""
    parts = list_parts(table, SUFFIXES)
    opened = [open_part(part) for part in parts]
    columns = tuple(dict.fromkeys(column for part in opened for column in part.columns))
    if not is_named:
        return columns, []
    files = [part.path.absolute() for part, one in zip(parts, opened, strict=True) if isinstance(one, ColumnarPart)]
    raw = [part for part, one in zip(parts, opened, strict=True) if not isinstance(one, ColumnarPart)]
    return columns, [*files, *_raw_as_parquet(raw, table, folder)]


def _raw_as_parquet(parts: Sequence[Part], table: Path, folder: Path) -> list[Path]:
    """Write one file for each sequence of parts with the same rows and columns. Their union could be far larger."""
    files: list[Path] = []
    group: list[Any] = []

    def write() -> None:
        if not group:
            return
        cells = Selection(tuple(group), tuple(np.arange(len(part.steps)) for part in group), table.name)
        if fits(cells.rows, cells.columns, len(cells.steps)):
            path = folder / f"{len(list(folder.iterdir())):06d}.parquet"
            write_columnar(path, cells, stream=table.parent.name, table=table.name, may_go_on=lambda: True)
            files.append(path)
        group.clear()

    for part in map(open_whole, parts):
        if group and (part.rows, part.columns) != (group[0].rows, group[0].columns):
            write()
        group.append(part)
    write()
    return files


def _no_cells(columns: Sequence[str]) -> str:
    cells = "".join(f", NULL::FLOAT AS {_name(column_name(column))}" for column in columns)
    return f"(SELECT '' AS name, 0::BIGINT AS step, 0::DOUBLE AS time{cells} WHERE false)"


def _cell(column: str, table: str) -> str:
    """A column of a table, with NULL for cells that were not measured."""
    name = _name(column_name(column))
    if np.isnan(absent(table)):
        return f"CASE WHEN isnan({name}) THEN NULL ELSE {name} END AS {name}"
    return f"nullif({name}, {absent(table)}::FLOAT) AS {name}"


def _origin(source: Source, stream: str) -> str:
    return f"{_text(source.run)} AS run, {source.rank} AS rank, {_text(stream)} AS stream"


def _tables(source: Source) -> list[tuple[str, str]]:
    """The (stream, table) pairs of a run folder."""
    found = (source.record.path / "tables").glob("*/*")
    return sorted((entry.parent.name, entry.name) for entry in found if entry.is_dir())


def _sources(runs: Sequence[Run]) -> list[Source]:
    sources = []
    for run in runs:
        for record in (run, *(open_run(rank) for rank in run.ranks)):
            rank = record.description.get("rank")
            sources.append(Source(run.name, rank if isinstance(rank, int) else 0, record))
    return sources


# Symptoms, actions and incidents.


def _books(sources: Sequence[Source]) -> Mapping[str, list[dict[str, Any]]]:
    books: dict[str, list[dict[str, Any]]] = {name: [] for name in _BOOKS}
    for source in sources:
        record, origin = source.record, {"run": source.run, "rank": source.rank}
        said = {name: record.description.get(name) for name in ("started", "policy", "argv")}
        argv = said.pop("argv")
        said["command"] = " ".join(map(str, argv)) if isinstance(argv, list) else ""
        books["runs"].append({**origin, **_as_texts(said), "path": str(record.path), "ended": record.ended})
        books["facts"] += [{**origin, "name": name, "value": json.dumps(value)} for name, value in record.facts.items()]
        for symptom in record.symptoms:
            numbers = [(name, float(value)) for name, value in symptom.numbers.items()]
            line = symptom.at.__dict__ if symptom.at is not None else {}
            books["symptoms"].append({**origin, **symptom.__dict__, **line, "numbers": numbers})
        books["actions"] += [{**origin, **action.__dict__} for action in record.actions]
        books["incidents"] += [{**origin, **_incident(path)} for path in record.incidents]
    return books


def _incident(path: Path) -> dict[str, Any]:
    """One incident as a row. If its bundle cannot be read, the row has its path and the reason."""
    try:
        incident = open_for_report(path).incident
    except UsageError as error:
        return {"path": str(path), "why": str(error)}
    place = incident.finding.located
    return {
        "path": str(path),
        "stream": incident.stream,
        "step": incident.step,
        "created": incident.created,
        "why": incident.finding.why,
        "action": incident.action.what,
        **({name: getattr(place, name) for name in _PLACE} if place is not None else {}),
    }


_PLACE = ("phase", "operation", "produced", "module", "file", "line", "code")


def _book_schema(name: str) -> Any:
    """The columns of the views over the index, in display order."""
    pa = import_pyarrow()
    texts = pa.list_(pa.string())
    special = {
        "rank": pa.int32(),
        **dict.fromkeys(("step", "first_step", "last_step", "line"), pa.int64()),
        **dict.fromkeys(("signals", "tensors"), texts),
        "numbers": pa.map_(pa.string(), pa.float64()),
    }
    columns = {
        "runs": ("path", "started", "ended", "policy", "command"),
        "facts": ("name", "value"),
        "symptoms": (
            *("stream", "name", "severity", "first_step", "last_step", "message"),
            *("signals", "tensors", "numbers", "file", "line", "code"),
        ),
        "incidents": ("stream", "step", "path", "created", "action", *_PLACE, "why"),
        "actions": ("step", "policy", "what", "reason"),
    }[name]
    return pa.schema([(column, special.get(column, pa.string())) for column in ("run", "rank", *columns)])


def _as_texts(values: Mapping[str, Any]) -> dict[str, str | None]:
    return {name: None if value is None else str(value) for name, value in values.items()}


# SQL.


def _text(value: str) -> str:
    """A string literal."""
    return "'" + value.replace("'", "''") + "'"


def _name(value: str) -> str:
    """An identifier."""
    return '"' + value.replace('"', '""') + '"'


def _line(error: BaseException) -> str:
    """DuckDB's message in one line, without its drawing of the position."""
    text = " ".join(str(error).partition("\n\nLINE ")[0].split())
    return text[:MESSAGE_LENGTH_MAX]
