"""``steadytrain replay``: do recorded steps again in a new process, and compare them to the last bit."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import click

from steadytrain.cli import _options
from steadytrain.core.errors import UsageError

TIMES_MAX = 1000


@click.command()
@click.argument("incident", required=False)
@click.option("--from", "first", type=int, metavar="STEP", help="First step; by default that after the last snapshot.")
@click.option("--until", type=int, metavar="STEP", help="Last step; by default that of the incident.")
@click.option("--times", default=1, show_default=True, help="How often to replay.")
@click.option("--once", is_flag=True, help="No further replays to find out why a step differs.")
@click.option("--step-fn", metavar="MODULE:NAME", help="Without the script: what gives the loss, f(model, batch).")
@click.option(
    "--build", metavar="MODULE:NAME", help="With --step-fn: what gives (model, optimizer) or a third: update()."
)
@_options.tree
@click.option(
    "--lead-s",
    default=120.0,
    show_default=True,
    help="The launched script runs the earlier steps itself if they take at most this many seconds; else only one. "
    "Its own step counters then stand where they stood.",
)
@_options.runs_dir
@click.option("--wait-s", default=900.0, show_default=True, help="Longest time that each launched script may take.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (steadytrain.replay/1).")
@_options.launches
def command(
    incident: str | None,
    first: int | None,
    until: int | None,
    times: int,
    once: bool,
    step_fn: str | None,
    build: str | None,
    moved: str,
    lead_s: float,
    runs_dir: str,
    wait_s: float,
    as_json: bool,
) -> int:
    """Launch the recorded command again, do the recorded steps over, and say whether they are the same to the last bit.

    INCIDENT is a bundle, or a run (its gravest incident; a run without one, or one that was killed, as far as its tape
    reaches); by default the newest run. Where a step differs, more replays tell why: a nondeterministic operation, a
    value from outside, or a changed environment. Ends with status 1 when the symptom came again, 0 when it did not, 125
    when that cannot be told, as `git bisect run` wants it. Without a symptom to look for: 1 when a step differs.
    """
    from steadytrain.replay import launcher, verdict
    from steadytrain.replay.moved_files import Moved
    from steadytrain.storage.redaction import REDACTED

    if wait_s <= 0:
        raise UsageError(f"--wait-s {wait_s}: must be more than 0")
    if not lead_s >= 0:
        raise UsageError(f"--lead-s {lead_s}: must not be negative")
    if not 1 <= times <= TIMES_MAX:
        raise UsageError(f"--times {times}: between 1 and {TIMES_MAX}")
    for option, step in (("--from", first), ("--until", until)):
        if step is not None and step < 1:
            raise UsageError(f"{option} {step}: steps count from 1")
    if (step_fn is None) != (build is None):
        raise UsageError("--step-fn and --build go together: the one gives the loss, the other model and optimizer")
    for option, name in (("--step-fn", step_fn), ("--build", build)):
        if name is not None and not all(name.partition(":")):
            raise UsageError(f"{option} {name}: MODULE:NAME is wanted")
    loop = None if step_fn is None or build is None else (step_fn, build)
    place = Moved.parse(moved)
    source = recorded_source(incident, Path(runs_dir))
    if importlib.util.find_spec("torch") is None:
        raise UsageError("replay needs PyTorch to run the steps again; `steadytrain show` works without it")
    asked = launcher.plan(source, first=first, until=until, moved=place, wait_s=wait_s, lead_s=lead_s, loop=loop)
    if loop is None and any(REDACTED in str(argument) for argument in asked.environment.get("argv") or ()):
        click.echo(
            f"steadytrain: note: a secret among the arguments was not kept; the script gets {REDACTED}", err=True
        )
    try:
        replays, judged = launcher.replay(asked, times=times, explain=not once)
    except launcher.CannotReplayError as refusal:
        click.echo(f"steadytrain: cannot tell: {refusal}", err=True)
        return verdict.CANNOT_TELL_STATUS
    document = verdict.document(str(source), replays, judged, looked_for=asked.looked_for)
    if as_json:
        click.echo(json.dumps(document, indent=1, ensure_ascii=False))
    else:
        click.echo("\n".join(verdict.lines(document)))
    return verdict.status(replays, looked_for=asked.looked_for)


def recorded_source(incident: str | None, runs_dir: Path) -> Path:
    """The bundle, or a run that has none but a tape."""
    from steadytrain.storage.bundle import is_bundle
    from steadytrain.storage.run_search import find, gravest_incident, incident_or_run
    from steadytrain.storage.tape_files import find_recording

    path = incident_or_run(find(incident or None, runs_dir))
    return path if is_bundle(path) or find_recording(path).chunks else gravest_incident(path)
