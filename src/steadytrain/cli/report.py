"""``steadytrain report``: a run or an incident as one HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from steadytrain.cli import _options
from steadytrain.cli._next import say_next_of
from steadytrain.cli._output import say
from steadytrain.cli._standard_output import is_standard_output, page_at


@click.command()
@click.argument("target", required=False, metavar="[RUN|INCIDENT]")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File to write, - for standard output.  [default: steadytrain-NAME.html in the current folder]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["html", "md", "json", "junit"]),
    default="html",
    show_default=True,
    help="html is a page; the others are texts, by default to standard output.",
)
@_options.runs_dir
def command(target: str | None, output: Path | None, form: str, runs_dir: Path) -> None:
    """Write a run or incident as one offline HTML file; by default the newest run.

    RUN is a run folder or the name of a run under --runs-dir, INCIDENT the folder of an incident bundle.
    """
    from steadytrain.api.pages import report
    from steadytrain.api.targets import path_of

    if form != "html":
        _write_text(path_of(target, runs_dir), form, output)
        return
    with page_at(output) as file:
        page = report(target, file, runs_dir=runs_dir)
        if file == output:
            say(f"{page}  {page.stat().st_size / 1024:,.0f} KiB")
    path = path_of(target, runs_dir)
    say_next_of("checklist", path, why="what was done, and what is left to do", err=is_standard_output(output))


def _write_text(path: Path, form: str, output: Path | None) -> None:
    from steadytrain.api.pages import check_writable, formatted
    from steadytrain.report.page_file import write_page

    text = formatted(path, form)
    if output is None or is_standard_output(output):
        say(text.removesuffix("\n"))
        return
    check_writable(output)
    write_page(output, text)
    say_next_of("report", path, why="the same as a page")
