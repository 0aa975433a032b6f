"""``steadytrain runs``: the runs of a folder, newest first."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steadytrain.cli import _options, _terminal
from steadytrain.cli._next import say_next
from steadytrain.cli._output import in_columns, say, say_document, terminal_width
from steadytrain.core.errors import UsageError
from steadytrain.storage.documents import redact_value
from steadytrain.storage.stopped_recording import STOPPED_FILE

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from steadytrain.storage.run_summaries import RunSummary

COLUMNS = ("name", "started", "steps", "ended", "worst", "incidents")
NUMBERS = ("steps", "incidents")
STYLED_MAX = 500
"""More runs than this are listed without styles."""

BEGUN_SHOWN_MAX = 8


@click.command()
@_options.runs_dir
@click.option(
    "--root",
    metavar="WHERE",
    help="List the runs of all folders below a shared folder or an address (s3://bucket/runs), the gravest first.",
)
@click.option(
    "--by",
    type=click.Choice(("health", "cause", "symptom", "ended", "node", "device")),
    help="With --root: count the runs that have it in common.",
)
@_options.as_json
def command(runs_dir: Path, root: str | None, by: str | None, as_json: bool) -> None:
    """List the runs: start, number of steps, how each ended, and its symptoms.

    With --root, those of many people and machines, with node, device, gravest symptom and the cause that `diagnose`
    found:

    \b
    steadytrain runs --root /shared/experiments
    steadytrain runs --root s3://bucket/experiments --by cause
    """
    if root is not None:
        from steadytrain.cli._fleet import list_fleet

        list_fleet(root, by, as_json)
        return
    if by is not None:
        raise UsageError(f"--by {by}: counts the runs below a root; name one with --root")
    from steadytrain.storage.run_search import survey

    listing = survey(runs_dir)
    runs, unreadable, begun = listing.runs, list(listing.unreadable), listing.begun
    if as_json:
        document = {
            "schema": "steadytrain.runs/1",
            "runs": [_entry(run) for run in runs],
            "unreadable": unreadable,
            "without_steps": [one.path.name for one in begun],
        }
        say_document(document, ensure_ascii=True)
        return

    if len(runs) > STYLED_MAX or (runs and not sys.stdout.isatty()):
        say(_lines(runs))
    elif runs and _is_too_narrow(runs):
        _terminal.show(*_stacked(redact_value(runs)))
    elif runs:
        _terminal.show(_table(redact_value(runs)), crop=False)
    elif not begun:
        say(f"No runs in {runs_dir} yet; record one with `steadytrain run SCRIPT`.")
    for one in begun[:BEGUN_SHOWN_MAX]:
        say(f"{redact_value(one.sentence)}")
    if runs:
        say_next("show", "@last", *_options.elsewhere(runs_dir), why="what happened in the newest", err=True)
    for reason in unreadable:
        say(f"steadytrain: not listed: {reason}", err=True)


def _entry(run: RunSummary) -> dict[str, Any]:
    return {
        "run": run.name,
        "path": str(run.path),
        "started": run.started or None,
        "command": run.command,
        "ended": run.ended,
        "steps": run.steps,
        "worst": run.worst,
        "incidents": run.incidents,
        "ended_first": run.first_rank,
    }


def _table(runs: Sequence[RunSummary]) -> Table:
    from rich.table import Table
    from rich.text import Text

    from steadytrain.report.text import STYLES

    rows = _rows(runs)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("name", no_wrap=True, overflow="ignore", min_width=max(len(cells[0]) for cells in rows))
    table.add_column("started", no_wrap=True)
    table.add_column("steps", justify="right", no_wrap=True)
    table.add_column("ended", no_wrap=True)
    table.add_column("worst", no_wrap=True)
    table.add_column("incidents", justify="right", no_wrap=True)
    for run, (name, started, steps, ended, gravest, incidents) in zip(runs, rows, strict=True):
        gravest_text = Text(gravest, style=STYLES[run.worst] if run.worst else "")
        table.add_row(Text(name), Text(started), steps, Text(ended), gravest_text, incidents)
    return table


def _is_too_narrow(runs: Sequence[RunSummary]) -> bool:
    """Whether the terminal would cut a column of the table off."""
    width = terminal_width()
    return width is not None and any(len(line) > width for line in _lines(runs).splitlines())


def _stacked(runs: Sequence[RunSummary]) -> Iterator[Text]:
    """Two lines a run, for a narrow terminal."""
    from rich.text import Text

    from steadytrain.report.text import STYLES

    for run, (name, started, steps, ended, gravest, incidents) in zip(runs, _rows(runs), strict=True):
        yield Text(name, no_wrap=True, overflow="ignore")
        details = Text(f"  {started}  {steps} {'step' if run.steps == 1 else 'steps'}  {ended}  ")
        details.append(gravest, style=STYLES[run.worst] if run.worst else "")
        details.append(f"  {incidents} {'incident' if run.incidents == 1 else 'incidents'}" if run.incidents else "")
        yield details


def _lines(runs: Sequence[RunSummary]) -> str:
    """The same table without styles and without folding: rich takes 0.3 ms a row."""
    return in_columns([COLUMNS, *_rows(runs)], NUMBERS)


def _rows(runs: Sequence[RunSummary]) -> list[tuple[str, ...]]:
    """The cells of each run. A name that two runs were given finds neither: those stand under their folders' names."""
    given = Counter(run.name for run in runs)
    folders = {run.path.name for run in runs}
    return [
        _cells(run, run.name if given[run.name] == 1 and run.name not in folders - {run.path.name} else run.path.name)
        for run in runs
    ]


def _cells(run: RunSummary, name: str) -> tuple[str, ...]:
    from steadytrain.report.wording import clean

    return (
        clean(name),
        clean(run.started)[:16].replace("T", " "),
        f"{run.steps:,}",
        clean(run.state) + (f" (rank {run.first_rank} first)" if run.first_rank is not None else ""),
        run.worst or _without_symptom(run),
        f"{run.incidents:,}",
    )


def _without_symptom(run: RunSummary) -> str:
    if (run.path / STOPPED_FILE).exists():
        return "recording stopped"
    return "a stall" if run.ending.stalled else "none seen"
