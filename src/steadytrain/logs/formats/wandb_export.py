"""The CSV that a chart of Weights & Biases exports: a step column, and for each run a column ``RUN - METRIC``.

The columns ``RUN - METRIC__MIN`` and ``__MAX`` of the same chart are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, final

import numpy as np

from steadytrain.core.errors import UsageError
from steadytrain.logs.column_names import role_of
from steadytrain.logs.delimited_text import Header, header_of, read_delimited, require_header
from steadytrain.logs.log_rows import Column, Rows
from steadytrain.logs.log_runs import logs_of
from steadytrain.logs.reader import Columns, Log, Reader, Tell
from steadytrain.logs.text_files import is_text

_BETWEEN = " - "
_EDGES = ("__MIN", "__MAX")


@final
class WandbExport(Reader):
    """The CSV export of a Weights & Biases chart, with one column per run."""

    kind = "wandb-csv"
    in_folders: ClassVar[tuple[str, ...]] = ()

    def claims(self, path: Path, head: bytes) -> bool:
        if not head or not is_text(head) or not any(edge.encode() in head for edge in _EDGES):
            return False
        header = header_of(head, path.suffix.lower())
        return header is not None and any(_BETWEEN in name for name in header.names)

    def read(self, path: Path, columns: Columns, tell: Tell) -> tuple[Log, ...]:
        header = require_header(path)
        rows = read_delimited(path, header, [], tell)
        logs: list[Log] = []
        reasons: list[str] = []
        for run, held in _by_run(header, rows.columns).items():
            try:
                logs += logs_of(Rows(rows.count, held, notes=rows.notes), columns, path=path, kind=self.kind, name=run)
            except UsageError as error:
                reasons.append(str(error))
        if not logs:
            raise UsageError(reasons[0] if reasons else f"{path}: no column belongs to a run")
        return tuple(logs)


def _by_run(header: Header, columns: Mapping[str, Column]) -> dict[str, dict[str, Column]]:
    """The columns of each run by metric name, with the columns that all runs share."""
    shared: dict[str, Column] = {}
    runs: dict[str, dict[str, Column]] = {}
    for name, column in columns.items():
        if name.endswith(_EDGES):
            continue
        run, between, metric = name.rpartition(_BETWEEN)
        if between:
            runs.setdefault(run, {})[metric] = column
        else:
            shared[name] = column
    return {run: {**_shared_in(shared, held), **held} for run, held in runs.items()}


def _shared_in(shared: Mapping[str, Column], held: Mapping[str, Column]) -> dict[str, Column]:
    """The shared columns at the rows of one run. The chart has a row for every step of every run."""
    rows = np.unique(np.concatenate([column.rows for column in held.values()]))
    found = {}
    for name, column in shared.items():
        values, there = column.at(rows)
        if there.any() and (role_of(name).what != "other"):
            found[name] = Column(rows[there], values[there])
    return found
