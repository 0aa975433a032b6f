"""``steadytrain debug``: the ten steps of the method, taken in order."""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from steadytrain.cli import _consent, _options
from steadytrain.cli._output import say, say_document
from steadytrain.cli._progress import progress
from steadytrain.cli._standard_output import is_standard_output, page_at
from steadytrain.core.errors import UsageError
from steadytrain.core.own_command import own_command

if TYPE_CHECKING:
    from steadytrain.method.walk import Walk

INTERRUPTED_STATUS = 130
WIDTH_MAX = 110


@dataclass(frozen=True)
class DebugOptions:
    """How the steps are taken: time, data sets, trials at once, moved files, folder of runs."""

    budget: str
    data: tuple[str, ...]
    workers: int | None
    moved: str
    runs_dir: Path


@click.command()
@click.argument("target", required=False, metavar="[SCRIPT|RUN|INCIDENT]")
@click.argument("arguments", nargs=-1, metavar="[-- ARGUMENTS...]")
@click.option("--budget", default="10m", show_default=True, metavar="TIME", help="Time for all steps: 90s, 10m, 1h.")
@click.option("--data", multiple=True, metavar="PATH", help="Data set to check in step 2; may be given several times.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Also write the result as one offline HTML page; - for standard output.",
)
@_options.workers
@_options.tree
@_options.runs_dir
@_options.allow_network
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (steadytrain.debug/1).")
@_consent.before_launch
@_options.gathered(lambda: DebugOptions, into="options")
def command(
    target: str | None, arguments: tuple[str, ...], output: Path | None, as_json: bool, options: DebugOptions
) -> int:
    """Go through a practitioner's ten steps and find where the fault lies.

    Reproduce; data and tokenizer; instrument; isolate model, data or optimizer; precision; learning rate and warm-up;
    safety nets; architecture; distribution; minimal reproduction. Each step says what was done, what it showed, what it
    means, and the next command. A SCRIPT is run under watch first, for at most half of the budget; its arguments stand
    after `--`. By default the newest run.

    Results are kept with the run: a second call continues, and runs nothing twice. Ctrl-C keeps what is done (exit
    status 130). Otherwise exits with 0 whatever the answer.
    """
    from steadytrain.api.method_steps import debug
    from steadytrain.api.pages import check_writable, report

    if is_standard_output(output) and as_json:
        raise UsageError("-o - and --json: both go to standard output; name a file with -o")
    if output is not None and not is_standard_output(output):
        check_writable(output)
    budget_s = _options.seconds(options.budget)
    with progress() as tell:
        walk = debug(
            target,
            arguments,
            budget_s=budget_s,
            workers=options.workers,
            data=options.data,
            moved=options.moved,
            runs_dir=options.runs_dir,
            tell=tell,
        )
    if output is not None:
        with page_at(output) as file:
            report(walk.incident, file, walk=walk)
    if as_json:
        say_document(walk.to_json())
    else:
        _print(walk, output)
    return INTERRUPTED_STATUS if walk.interrupted else 0


def _print(walk: Walk, output: Path | None) -> None:
    from steadytrain.report import method_shown

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    width = min(WIDTH_MAX, shutil.get_terminal_size((WIDTH_MAX, 24)).columns)
    lines = method_shown.as_lines(method_shown.part(walk.to_json()), width)
    err = is_standard_output(output)
    page = output or f"{own_command()} debug {shlex.quote(walk.target)} -o debug.html"
    say("\n".join([*lines, f"page: {page}"]), err=err)
