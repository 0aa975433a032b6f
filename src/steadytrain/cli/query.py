"""``steadytrain query``: SQL over runs, as a table on the terminal, as JSON or as CSV."""

from __future__ import annotations

import csv
import glob
import json
import math
import sys
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steadytrain.cli import _options, _terminal
from steadytrain.cli._next import say_next, say_next_of
from steadytrain.cli._output import say
from steadytrain.storage.documents import as_json
from steadytrain.storage.redaction import redact_text

if TYPE_CHECKING:
    from rich.table import Table

    from steadytrain.storage.query import Answer
    from steadytrain.storage.run_folder import Run

ROWS_SHOWN_MAX = 200

_GAP = 2
_DIGITS = {"FLOAT": 7}
"""Significant digits of a number on the terminal, for types that do not need the ten digits of a time in seconds."""


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="[RUN]... SQL")
@_options.runs_dir
@click.option("--json", "form", flag_value="json", help="Print the JSON document (docs/schemas.md) and nothing else.")
@click.option("--csv", "form", flag_value="csv", help="Print comma-separated values.")
@click.option(
    "--wait-s",
    "--seconds",
    "seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Time for the answer; --seconds is its older name.",
)
@click.option(
    "--memory", type=click.FloatRange(min=0, min_open=True), metavar="GIB", help="Memory for it, if not by the machine."
)
def command(words: tuple[str, ...], runs_dir: Path, form: str | None, seconds: float, memory: float | None) -> None:
    """Query runs in SQL: one SELECT over their steps, tables, symptoms and incidents.

    RUN is a run folder, the name of a run under --runs-dir, or a pattern of either; by default all runs under
    --runs-dir. A run may still be in progress. `SHOW TABLES` lists the views, `DESCRIBE steps` the columns of one:

    \b
    steadytrain query RUN "SELECT step, loss FROM steps ORDER BY loss DESC LIMIT 5"
    steadytrain query RUN "SELECT name, max(norm) FROM gradients GROUP BY name"
    steadytrain query "SELECT run, min(loss) FROM steps GROUP BY run"
    """
    from steadytrain.storage.query import ask
    from steadytrain.storage.query_bounds import Bounds

    *targets, sql = words
    runs = [run for target in targets for run in _find(target, runs_dir)] if targets else _all(runs_dir)
    if hasattr(sys.stdout, "reconfigure"):
        # A terminal that cannot show a character shows a question mark instead of a traceback.
        sys.stdout.reconfigure(errors="replace")
    bounds = Bounds(seconds, None if memory is None else int(memory * 2**30))
    with ask(runs, sql, bounds) as answer:
        {"json": _print_json, "csv": _print_csv, None: _print_table}[form](answer)
    if form is None and len(runs) == 1:
        say_next_of("show", runs[0].path, why="what was seen in the run", err=True)
    elif form is None:
        say_next("runs", *_options.elsewhere(runs_dir), err=True)


def _find(target: str, runs_dir: Path) -> list[Run]:
    """The runs that ``target`` names."""
    from steadytrain.core.errors import UsageError
    from steadytrain.storage.bundle import is_bundle
    from steadytrain.storage.run_folder import RUN_FILE, open_run
    from steadytrain.storage.run_search import find

    if glob.has_magic(target) and not Path(target).exists():
        paths = sorted(Path(path) for path in [*glob.glob(target), *glob.glob(str(runs_dir / target))])
        paths = [path for path in dict.fromkeys(paths) if (path / RUN_FILE).is_file()]
        if not paths:
            raise UsageError(f"{target}: no run matches, here or under {runs_dir}")
        return [open_run(path) for path in paths]
    path = find(target, runs_dir)
    if is_bundle(path):
        raise UsageError(f"{path}: an incident bundle; a query needs a run: `steadytrain query RUN SQL`")
    return [open_run(path)]


def _all(runs_dir: Path) -> list[Run]:
    """Every readable run under ``runs_dir``. Names the others on stderr."""
    from steadytrain.core.errors import UsageError
    from steadytrain.storage.run_folder import open_run
    from steadytrain.storage.run_search import list_runs, unreadable_runs

    runs = [open_run(run.path) for run in list_runs(runs_dir)]
    for reason in unreadable_runs(runs_dir):
        say(f"steadytrain: not queried: {reason}", err=True)
    if not runs:
        raise UsageError(f"{runs_dir}: no runs here yet; record one with `steadytrain run SCRIPT`")
    return runs


def _print_json(answer: Answer) -> None:
    """Print the ``steadytrain.query/1`` document, one line per row as rows arrive."""
    columns = [{"name": column.name, "type": column.type} for column in answer.columns]
    say(f'{{"schema": "steadytrain.query/1",\n "columns": {json.dumps(columns)},\n "rows": [', nl=False)
    for position, row in enumerate(answer.rows):
        values = as_json([_plain(value) for value in row], allow_nan=False)
        click.echo(f"{',' if position else ''}\n  {values}", nl=False)
    say("\n ]}")


def _print_csv(answer: Answer) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([redact_text(column.name) for column in answer.columns])
    for row in answer.rows:
        writer.writerow([_cell(value) if value is not None else "" for value in row])


def _print_table(answer: Answer) -> None:
    """Print rows as a table, or each row as a list if the terminal is too narrow."""
    from steadytrain.report.wording import clean

    names = [clean(redact_text(column.name)) for column in answer.columns]
    digits = [_DIGITS.get(column.type, 10) for column in answer.columns]
    rows = list(islice(answer.rows, ROWS_SHOWN_MAX + 1))
    shown = [[clean(_shown(value, of)) for value, of in zip(row, digits, strict=True)] for row in rows[:ROWS_SHOWN_MAX]]
    widths = [max(map(len, column)) for column in zip(names, *shown, strict=True)]
    width = sum(widths) + _GAP * len(widths)
    console = _terminal.console()
    narrow = sys.stdout.isatty() and width > console.width
    if not narrow:
        console.width = max(width, console.width)
    tables = [_record(names, row) for row in shown] if narrow else [_table(names, shown, rows)]
    for table in tables:
        _terminal.show(table, on=console, crop=False)
        if narrow:
            say()
    if len(rows) > ROWS_SHOWN_MAX:
        say(f"The first {ROWS_SHOWN_MAX} rows. All of them: --csv or --json")


def _table(names: list[str], shown: list[list[str]], rows: list[tuple[Any, ...]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
    for position, name in enumerate(names):
        numbers = all(isinstance(row[position], int | float | Decimal | None) for row in rows)
        table.add_column(Text(name), justify="right" if numbers else "left", no_wrap=True)
    for row in shown:
        table.add_row(*map(Text, row))
    return table


def _record(names: list[str], row: list[str]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in zip(names, row, strict=True):
        table.add_row(Text(name), Text(value))
    return table


def _shown(value: Any, digits: int) -> str:
    """A value as the terminal shows it."""
    if value is None:
        return ""
    return f"{value:.{digits}g}" if isinstance(value, float) else _cell(value)


def _cell(value: Any) -> str:
    if isinstance(value, dict | list):
        return as_json(_plain(value), allow_nan=False)
    return redact_text(str(value))


def _plain(value: Any) -> Any:
    """A value as strict JSON."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    return str(value)
