"""``steadytrain locate``: do the failing step of an incident again, in a new process."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import click

from steadytrain.errors import UsageError

NOT_LOCATED_STATUS = 1


@click.command()
@click.argument("incident", required=False)
@click.option("--runs-dir", default="steadytrain-runs", show_default=True, help="Folder of run folders.")
@click.option("--wait-s", default=900.0, show_default=True, help="Longest time that the launched script may take.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (steadytrain.locate/1).")
def command(incident: str | None, runs_dir: str, wait_s: float, as_json: bool) -> int:
    """Launch the recorded command again, do the failing step over, and name the first bad operation.

    INCIDENT is a bundle, or a run (its last incident); by default that of the newest run. The script runs its set-up
    and steps of its own before the recorded one: what it writes meanwhile, it writes again. Ends with status 0 when an
    operation (or a bad input) is named, 1 when none is.
    """
    from steadytrain.store.bundle import open_bundle
    from steadytrain.store.folder import find, newest, newest_incident

    path = newest_incident(find(incident, Path(runs_dir)) if incident else newest(Path(runs_dir)), Path(runs_dir))
    bundle = open_bundle(path)
    if importlib.util.find_spec("torch") is None:
        raise UsageError("locate needs PyTorch to run the step again; `steadytrain show` works without it")
    if wait_s <= 0:
        raise UsageError(f"--wait-s {wait_s}: must be more than 0")
    from steadytrain.lab import locating, relaunch
    from steadytrain.store.step_look import keep_look

    recorded = bundle.incident.finding
    found = locating.find_again(bundle, wait_s=wait_s)
    again = found.finding
    relaunch.keep_better(bundle, again)
    if found.look is not None:
        keep_look(path, found.look)
    if as_json:
        click.echo(json.dumps(locating.document(path, recorded, found), indent=1, ensure_ascii=False))
    else:
        from steadytrain.capture.message import finding_lines
        from steadytrain.report.look import look_facts

        click.echo(f"step {bundle.incident.step} of {bundle.incident.run}: {relaunch.verdict(recorded, again)}")
        click.echo("\n".join(finding_lines(relaunch.best(recorded, again))))
        for fact in look_facts(found.look) if found.look is not None else ():
            click.echo(f"  {fact.label:<20} {fact.value}".rstrip())
        for note in found.notes:
            click.echo(f"  {'note':<20} {note}")
        click.echo(f"  {'kept in':<20} {path}")
    named = recorded.located or again.located or relaunch.is_named_input(recorded) or relaunch.is_named_input(again)
    return 0 if named else NOT_LOCATED_STATUS
