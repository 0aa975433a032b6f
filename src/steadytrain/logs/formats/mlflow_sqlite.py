"""MLflow's SQLite store (``mlflow.db``), read directly and read-only: the tables ``runs`` and ``metrics``."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import ClassVar, final
from urllib.parse import quote

from steadytrain.core.errors import UsageError
from steadytrain.logs.log_runs import RUNS_MAX, logs_of
from steadytrain.logs.metric_points import Points, rows_of
from steadytrain.logs.reader import Columns, Log, Reader, Tell

MAGIC = b"SQLite format 3\x00"
BUSY_WAIT_S = 5.0
_MILLISECOND = 1e-3
_FLOAT_MAX = 1.7976931348623157e308
"""MLflow stores infinity as the largest float."""


@final
class MlflowSqlite(Reader):
    """MLflow's database ``mlflow.db``, opened read-only."""

    kind = "mlflow-sqlite"
    in_folders: ClassVar[tuple[str, ...]] = ("mlflow*.db", "mlruns*.db", "mlflow*.sqlite")

    def claims(self, path: Path, head: bytes) -> bool:
        return head.startswith(MAGIC)

    def read(self, path: Path, columns: Columns, tell: Tell) -> tuple[Log, ...]:
        try:
            # Not opened as immutable: a server may be writing to it.
            address = f"file:{quote(str(path.absolute()))}?mode=ro"
            with closing(sqlite3.connect(address, uri=True, timeout=BUSY_WAIT_S)) as store:
                return _read_store(store, path, columns, tell)
        except sqlite3.Error as error:
            raise UsageError(f"{path}: cannot be read as an MLflow store ({error})") from None


def _read_store(store: sqlite3.Connection, path: Path, columns: Columns, tell: Tell) -> tuple[Log, ...]:
    runs = store.execute(
        "SELECT run_uuid, name FROM runs WHERE lifecycle_stage IS NOT 'deleted' ORDER BY start_time LIMIT ?",
        (RUNS_MAX + 1,),
    ).fetchall()
    logs: list[Log] = []
    reasons: list[str] = []
    for number, (run, name) in enumerate(runs[:RUNS_MAX], start=1):
        try:
            rows = rows_of(_metrics(store, run))
            logs += logs_of(rows, columns, path=path, kind=MlflowSqlite.kind, name=str(name or run))
        except UsageError as error:
            reasons.append(f"{name or run}: {str(error).removeprefix(f'{path}: ')}")
        tell(path, number, len(runs))
    if not logs:
        raise UsageError(f"{path}: {reasons[0] if reasons else 'no runs in this store of MLflow'}")
    return tuple(logs)


def _metrics(store: sqlite3.Connection, run: str) -> dict[str, Points]:
    metrics: dict[str, Points] = {}
    query = "SELECT key, value, timestamp, step, is_nan FROM metrics WHERE run_uuid = ? ORDER BY timestamp, rowid"
    for key, value, time, step, is_nan in store.execute(query, (run,)):
        if is_nan:
            value = float("nan")
        elif abs(value) >= _FLOAT_MAX:
            value = float("inf") if value > 0 else float("-inf")
        metrics.setdefault(str(key), Points()).add(int(step), float(value), (time or 0) * _MILLISECOND)
    return metrics
