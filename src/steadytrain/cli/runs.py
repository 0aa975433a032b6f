"""``steadytrain runs``: the runs of a folder, newest first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steadytrain.cli import _options, _terminal

if TYPE_CHECKING:
    from rich.table import Table

    from steadytrain.storage.run_search import RunSummary


@click.command()
@_options.runs_dir
@_options.as_json
def command(runs_dir: Path, as_json: bool) -> None:
    """List the runs: start, number of steps, how each ended, and its symptoms."""
    from steadytrain.storage.run_search import list_runs, unreadable_runs

    runs = list_runs(runs_dir)
    unreadable = unreadable_runs(runs_dir)
    if as_json:
        document = {
            "schema": "steadytrain.runs/1",
            "runs": [_entry(run) for run in runs],
            "unreadable": unreadable,
        }
        click.echo(json.dumps(document, indent=1, allow_nan=False))
        return

    if runs:
        _terminal.show(_table(runs))
    else:
        click.echo(f"No runs in {runs_dir} yet; record one with `steadytrain run SCRIPT`.")
    for reason in unreadable:
        click.echo(f"steadytrain: not listed: {reason}", err=True)


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
    }


def _table(runs: list[RunSummary]) -> Table:
    from rich.table import Table
    from rich.text import Text

    from steadytrain.report.text import STYLES
    from steadytrain.report.wording import clean

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("name", overflow="fold")
    table.add_column("started", no_wrap=True)
    table.add_column("steps", justify="right", no_wrap=True)
    table.add_column("ended", no_wrap=True)
    table.add_column("worst", no_wrap=True)
    table.add_column("incidents", justify="right", no_wrap=True)
    for run in runs:
        table.add_row(
            Text(clean(run.name)),
            Text(clean(run.started)[:16].replace("T", " ")),
            f"{run.steps:,}",
            Text(clean(run.ended or "not recorded")),
            Text(run.worst or "none seen", style=STYLES[run.worst] if run.worst else ""),
            f"{run.incidents:,}",
        )
    return table
