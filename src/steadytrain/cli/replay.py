"""``steadytrain replay``: do recorded steps again in a new process, and compare them to the last bit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from steadytrain.cli import _options

if TYPE_CHECKING:
    from steadytrain.api.replays import ReplayOptions


def _options_of_a_replay() -> type[ReplayOptions]:
    from steadytrain.api.replays import ReplayOptions

    return ReplayOptions


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
@_options.gathered(_options_of_a_replay, into="options")
def command(incident: str | None, as_json: bool, options: ReplayOptions) -> int:
    """Launch the recorded command again, do the recorded steps over, and say whether they are the same to the last bit.

    INCIDENT is a bundle, or a run (its gravest incident; a run without one, or one that was killed, as far as its tape
    reaches); by default the newest run. Where a step differs, more replays tell why: a nondeterministic operation, a
    value from outside, or a changed environment. Ends with status 1 when the symptom came again, 0 when it did not, 125
    when that cannot be told, as `git bisect run` wants it. Without a symptom to look for: 1 when a step differs.
    """
    from steadytrain.api.replays import replay_with
    from steadytrain.replay import launcher, verdict

    try:
        result = replay_with(incident, options, tell=lambda line: click.echo(f"steadytrain: {line}", err=True))
    except launcher.CannotReplayError as refusal:
        click.echo(f"steadytrain: cannot tell: {refusal}", err=True)
        return verdict.CANNOT_TELL_STATUS
    document = result.to_json()
    if as_json:
        click.echo(json.dumps(document, indent=1, ensure_ascii=False))
    else:
        click.echo("\n".join(verdict.lines(document)))
    return result.status
