"""``steadytrain locate``: replay the failing step of an incident in a new process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from steadytrain.cli import _consent, _options
from steadytrain.cli._next import say_next_of
from steadytrain.cli._output import say_document, say_lines

if TYPE_CHECKING:
    from steadytrain.api.failure_location import Location

NOT_LOCATED_STATUS = 1


@click.command()
@click.argument("incident", required=False)
@_options.runs_dir
@_options.allow_network
@click.option("--step", type=int, metavar="STEP", help="Recorded step to replay; by default that of the incident.")
@click.option("--wait-s", default=900.0, show_default=True, help="Time limit of the launched script.")
@_options.step_fn
@_options.build
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (steadytrain.locate/1).")
@_consent.before_launch
def command(
    incident: str | None,
    runs_dir: Path,
    step: int | None,
    wait_s: float,
    step_fn: str | None,
    build: str | None,
    as_json: bool,
) -> int:
    """Replay the failing step and name the first bad operation.

    INCIDENT is a bundle, or a run (its most severe incident; with --step also a run without incidents that still has
    its tape); by default the newest run. Also shows the step's result in float64, how near module outputs are to the
    largest number of their dtype, and, if the script compiles, a comparison of eager, aot_eager and its backend.
    Launches the recorded command again: the script runs its set-up and some earlier steps first, and writes to a
    temporary folder. Exits with 0 if it names an operation (or a bad input), 1 if not.
    """
    from steadytrain.api.failure_location import locate

    found = locate(incident, step=step, wait_s=wait_s, runs_dir=runs_dir, step_fn=step_fn, build=build)
    if as_json:
        say_document(found.to_json())
    else:
        say_lines("\n".join(_lines(found)))
        say_next_of("diagnose", found.source, why="find the cause by trials")
    return 0 if found.named else NOT_LOCATED_STATUS


def _lines(found: Location) -> Iterator[str]:
    from steadytrain.capture.incident.message import finding_lines
    from steadytrain.replay import failing_step
    from steadytrain.report.look import look_facts
    from steadytrain.storage.run_search import run_of

    told = failing_step.verdict(found.recorded, found.again) if found.broke else "looked at in a new process"
    yield f"step {found.step} of {run_of(found.source).name}: {told}"
    yield from finding_lines(found.finding)
    for fact in look_facts(found.look) if found.look is not None else ():
        yield f"  {fact.label:<20} {fact.value}".rstrip()
    for note in found.found.notes:
        yield f"  {'note':<20} {note}"
    if found.kept:
        yield f"  {'kept in':<20} {found.source}"
