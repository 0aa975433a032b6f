"""``steadytrain replay``: do recorded steps again in a new process, and compare them to the last bit."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import click

from steadytrain.errors import UsageError

TIMES_MAX = 1000


@click.command()
@click.argument("incident", required=False)
@click.option("--times", default=1, show_default=True, help="How often to replay.")
@click.option("--once", is_flag=True, help="No further replays to find out why a step differs: status and step only.")
@click.option(
    "--tree", "moved", default="-", metavar="OLD=NEW", help="Take the script from the folder NEW instead of OLD."
)
@click.option("--runs-dir", default="steadytrain-runs", show_default=True, help="Folder of run folders.")
@click.option("--wait-s", default=900.0, show_default=True, help="Longest time that each launched script may take.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (steadytrain.replay/1).")
def command(
    incident: str | None, times: int, once: bool, moved: str, runs_dir: str, wait_s: float, as_json: bool
) -> int:
    """Launch the recorded command again, do the recorded steps over, and say whether they are the same to the last bit.

    INCIDENT is a bundle, or a run (its last incident); by default that of the newest run. Where a step differs, more
    replays tell why: a nondeterministic operation, a value from outside, or a changed environment. Ends with status 1
    when the symptom came again, 0 when it did not, 125 when that cannot be told, as `git bisect run` wants it.
    """
    from steadytrain.lab import judgement, replaying
    from steadytrain.lab.moved import Moved
    from steadytrain.store.bundle import open_bundle
    from steadytrain.store.folder import find, newest, newest_incident

    if wait_s <= 0:
        raise UsageError(f"--wait-s {wait_s}: must be more than 0")
    if not 1 <= times <= TIMES_MAX:
        raise UsageError(f"--times {times}: between 1 and {TIMES_MAX}")
    place = Moved.parse(moved)
    path = newest_incident(find(incident, Path(runs_dir)) if incident else newest(Path(runs_dir)), Path(runs_dir))
    bundle = open_bundle(path)
    if importlib.util.find_spec("torch") is None:
        raise UsageError("replay needs PyTorch to run the steps again; `steadytrain show` works without it")
    try:
        launch = replaying.Launch(bundle, place, wait_s)
        replays, judged = replaying.replay(launch, times=times, explain=not once)
    except replaying.CannotReplayError as refusal:
        click.echo(f"steadytrain: cannot tell: {refusal}", err=True)
        return judgement.CANNOT_TELL_STATUS
    document = judgement.document(str(path), replays, judged)
    if as_json:
        click.echo(json.dumps(document, indent=1, ensure_ascii=False))
    else:
        click.echo("\n".join(judgement.lines(document)))
    return judgement.status(replays, looked_for=True)
