"""``steadytrain replay``: run recorded steps again in a new process, and compare them bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from steadytrain.cli import _consent, _options
from steadytrain.cli._next import say_next_of
from steadytrain.cli._output import say, say_document, say_lines

if TYPE_CHECKING:
    from steadytrain.api.replays import ReplayOptions


def _options_of_a_replay() -> type[ReplayOptions]:
    from steadytrain.api.replays import ReplayOptions

    return ReplayOptions


@click.command()
@click.argument("incident", required=False)
@click.option(
    "--from", "first", type=int, metavar="STEP", help="First step; by default the one after the last snapshot."
)
@click.option("--until", type=int, metavar="STEP", help="Last step; by default that of the incident.")
@click.option("--times", default=1, show_default=True, help="Number of replays.")
@click.option("--once", is_flag=True, help="No further replays to find why a step differs.")
@click.option(
    "--devices", is_flag=True, help="Replay on each GPU of the recorded kind, or on each core: one may compute wrong."
)
@_options.step_fn
@_options.build
@_options.tree
@click.option(
    "--lead-s",
    default=120.0,
    show_default=True,
    help="The launched script runs the earlier steps itself if they take at most this many seconds; else only one. "
    "Its own step counters then have their recorded values.",
)
@_options.runs_dir
@_options.allow_network
@click.option("--wait-s", default=900.0, show_default=True, help="Time limit of each launched script.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (steadytrain.replay/1).")
@_consent.before_launch
@_options.gathered(_options_of_a_replay, into="options")
def command(incident: str | None, as_json: bool, options: ReplayOptions) -> int:
    """Replay the recorded steps and report whether they are bit-identical.

    INCIDENT is a bundle, or a run (its most severe incident; without one, or if the run was killed, the steps on its
    tape); by default the newest run. Launches the recorded command again. If a step differs, more replays find the
    reason: a nondeterministic operation, a value from outside, or a changed environment. Exits with 1 if the symptom
    recurs, 0 if not, 125 if it cannot decide, as `git bisect run` expects. Without a symptom: 1 if a step differs.
    """
    from steadytrain.api.replays import replay_with
    from steadytrain.replay import launcher, verdict

    try:
        result = replay_with(incident, options, tell=lambda line: say(f"steadytrain: {line}", err=True))
    except launcher.CannotReplayError as refusal:
        say(f"steadytrain: cannot tell: {refusal}", err=True)
        return verdict.CANNOT_TELL_STATUS
    document = result.to_json()
    if as_json:
        say_document(document)
    else:
        say_lines("\n".join(verdict.lines(document)))
        say_next_of("diagnose", Path(document["incident"]), why="find the cause by trials")
    return result.status
