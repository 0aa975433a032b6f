"""``steadytrain diagnose``: why it went wrong, by trials on a replay."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from steadytrain.cli import _options
from steadytrain.core.errors import UsageError

if TYPE_CHECKING:
    from steadytrain.diagnosis.answer import Answer

WORKERS_MAX = 256
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


@click.command()
@click.argument("incident", required=False, metavar="[INCIDENT|RUN]")
@click.option("--budget", default="10m", show_default=True, metavar="TIME", help="Begin no trial after this: 90s, 10m.")
@_options.workers
@_options.engine
@_options.tree
@_options.runs_dir
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (steadytrain.diagnosis/1).")
@_options.launches
def command(
    incident: str | None,
    budget: str,
    workers: int | None,
    engine: str,
    moved: str,
    runs_dir: str,
    as_json: bool,
) -> int:
    """Say why a run went wrong: look at the script, then change one thing at a time on a replay, with a control.

    INCIDENT is a bundle, or a run (its gravest incident, or the run itself where it has none); by default the newest
    run. Each trial does the recorded steps again with one thing changed. A cause is confirmed only where the unchanged
    replay shows the symptom, the one change removes it, and what would cure its rivals does not; else it is likely or
    possible, or the answer is unknown. Finished trials are kept beside the incident, so a diagnosis that was cut off
    goes on where it stopped. Ends with status 0 whatever the answer.
    """
    from steadytrain.cli.trial import source_of
    from steadytrain.trial_runs import diagnose

    seconds = _seconds(budget)
    if workers is not None and not 1 <= workers <= WORKERS_MAX:
        raise UsageError(f"--workers {workers}: between 1 and {WORKERS_MAX}")
    source = source_of(incident, Path(runs_dir))
    if importlib.util.find_spec("torch") is None:
        raise UsageError("diagnose needs PyTorch to do steps again; `steadytrain show` works without it")
    request = diagnose.Request(
        source=source,
        budget_s=seconds,
        workers=workers or min(4, os.cpu_count() or 1),
        engine=engine,
        moved=moved,
    )
    answer = diagnose.diagnose(request, tell=_teller())
    if as_json:
        click.echo(json.dumps(answer.to_json(), indent=1, ensure_ascii=False, allow_nan=False))
    else:
        _print(answer)
    return 0


def _print(answer: Answer) -> None:
    from rich.console import Console

    from steadytrain.report import diagnosis_shown, text

    if hasattr(sys.stdout, "reconfigure"):
        # A terminal that knows no block characters gets question marks, and no traceback.
        sys.stdout.reconfigure(errors="replace")
    console = Console(highlight=False, emoji=False, markup=False)
    with console.capture() as printed:
        console.print(text.diagnosis(diagnosis_shown.part(answer)), crop=False)
    click.echo("\n".join(line.rstrip() for line in printed.get().splitlines()))


def _teller() -> Callable[[str], None]:
    """Progress, on a terminal only."""
    if not sys.stderr.isatty():
        return lambda line: None
    return lambda line: click.echo(f"steadytrain: {line}", err=True)


def _seconds(budget: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|h)?", budget.strip())
    seconds = float(match[1]) * _UNITS[match[2] or ""] if match else 0.0
    if not seconds > 0:
        raise UsageError(f"--budget {budget}: a time above 0 such as 90s, 10m or 1h is wanted")
    return seconds
