"""``steadytrain locate``: do the failing step of an incident again, in a new process."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import click

from steadytrain.cli import _options
from steadytrain.core.errors import UsageError

NOT_LOCATED_STATUS = 1
NOT_SEARCHED = "nothing was searched when the step was recorded"


@click.command()
@click.argument("incident", required=False)
@_options.runs_dir
@click.option("--step", type=int, metavar="STEP", help="Look at this recorded step; by default that of the incident.")
@click.option("--wait-s", default=900.0, show_default=True, help="Longest time that the launched script may take.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (steadytrain.locate/1).")
@_options.launches
def command(incident: str | None, runs_dir: str, step: int | None, wait_s: float, as_json: bool) -> int:
    """Launch the recorded command again, do the failing step over, and name the first bad operation.

    INCIDENT is a bundle, or a run (its gravest incident; with --step one without incidents, as long as its tape is
    there); by default that of the newest run. Beside the operation: what float64 gives for the step, how near the
    outputs of modules are to the largest number of their format, and, where the script compiles, eager, aot_eager and
    its backend side by side. The script runs its set-up and steps of its own before the recorded ones; what it writes
    goes to a temporary folder. Ends with status 0 when an operation (or a bad input) is named, 1 when none is.
    """
    if step is not None and step < 1:
        raise UsageError(f"--step {step}: steps count from 1")
    if wait_s <= 0:
        raise UsageError(f"--wait-s {wait_s}: must be more than 0")
    from steadytrain.core.incident import Finding
    from steadytrain.locate import locate_failure
    from steadytrain.replay import failing_step
    from steadytrain.storage.step_look import keep_look

    path = _source(incident, Path(runs_dir), step)
    asked = locate_failure.target(path, step)
    if importlib.util.find_spec("torch") is None:
        raise UsageError("locate needs PyTorch to run the step again; `steadytrain show` works without it")
    recorded = asked.bundle.finding if asked.bundle is not None else Finding(None, NOT_SEARCHED)
    found = locate_failure.find_again(asked, wait_s=wait_s)
    again = found.finding
    if asked.bundle is not None:
        failing_step.keep_better(asked.bundle, again)
        if found.look is not None:
            keep_look(path, found.look)
    if as_json:
        click.echo(json.dumps(locate_failure.document(path, recorded, found), indent=1, ensure_ascii=False))
    else:
        from steadytrain.capture.incident.message import finding_lines
        from steadytrain.report.look import look_facts

        told = failing_step.verdict(recorded, again) if asked.broke else "looked at in a new process"
        click.echo(f"step {asked.step} of {path.name}: {told}")
        click.echo("\n".join(finding_lines(failing_step.best(recorded, again))))
        for fact in look_facts(found.look) if found.look is not None else ():
            click.echo(f"  {fact.label:<20} {fact.value}".rstrip())
        for note in found.notes:
            click.echo(f"  {'note':<20} {note}")
        if asked.bundle is not None:
            click.echo(f"  {'kept in':<20} {path}")
    named = (
        recorded.located or again.located or failing_step.is_named_input(recorded) or failing_step.is_named_input(again)
    )
    return 0 if named else NOT_LOCATED_STATUS


def _source(incident: str | None, runs_dir: Path, step: int | None) -> Path:
    """The bundle; with a step a run that has none, too."""
    from steadytrain.storage.run_search import find, gravest_incident, incident_or_run

    path = find(incident or None, runs_dir)
    return gravest_incident(path) if step is None else incident_or_run(path)
