"""``steadytrain report``: a run or an incident as one HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from steadytrain.cli import _options
from steadytrain.cli._next import say_next_of
from steadytrain.cli._output import say


@click.command()
@click.argument("target", required=False, metavar="[RUN|INCIDENT]")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File to write.  [default: steadytrain-NAME.html in the current folder]",
)
@_options.runs_dir
def command(target: str | None, output: Path | None, runs_dir: Path) -> None:
    """Write a run or incident as one offline HTML file; by default the newest run.

    RUN is a run folder or the name of a run under --runs-dir, INCIDENT the folder of an incident bundle.
    """
    from steadytrain.api.pages import report
    from steadytrain.api.targets import path_of

    page = report(target, output, runs_dir=runs_dir)
    say(f"{page}  {page.stat().st_size / 1024:,.0f} KiB")
    say_next_of("checklist", path_of(target, runs_dir), why="what was done, and what is left to do")
