"""``steadytrain onset``: find the first measured deviation before a symptom."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import click

from steadytrain.cli import _consent, _options
from steadytrain.cli._next import say_next_of
from steadytrain.cli._output import say, say_document, say_lines
from steadytrain.core.errors import UsageError


@click.command()
@click.argument("incident", required=False)
@click.option(
    "--until", type=int, metavar="STEP", help="Search the steps before this one; by default before the symptom's first."
)
@_options.tree
@click.option(
    "--lead-s",
    default=120.0,
    show_default=True,
    help="The launched script runs the earlier steps itself if they take at most this many seconds; else only one.",
)
@_options.runs_dir
@_options.allow_network
@click.option("--wait-s", default=900.0, show_default=True, help="Time limit of each launched script.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (steadytrain.onset/1).")
@_consent.before_launch
@_options.launches
def command(
    incident: str | None, until: int | None, moved: str, lead_s: float, runs_dir: Path, wait_s: float, as_json: bool
) -> int:
    """Name what departed from normal first in the steps before a symptom.

    INCIDENT is a bundle, or a run (its most severe incident; without one, the steps on its tape); by default the newest
    run. Replays these steps and measures in each: the batch, module outputs, attention logits, the loss in total and
    per row, gradients, updates and second moments. Exits with 0 if it names a departure, 1 if not, 125 if it
    cannot decide.
    """
    from steadytrain.api.targets import recorded_source
    from steadytrain.experiments.command_results import CommandResult, keep_result
    from steadytrain.onset import finding
    from steadytrain.replay.moved_files import Moved

    if wait_s <= 0:
        raise UsageError(f"--wait-s {wait_s}: must be more than 0")
    if not lead_s >= 0:
        raise UsageError(f"--lead-s {lead_s}: must not be negative")
    if until is not None and until < 1:
        raise UsageError(f"--until {until}: steps count from 1")
    place = Moved.parse(moved)
    source = recorded_source(incident, runs_dir)
    if importlib.util.find_spec("torch") is None:
        raise UsageError("onset needs PyTorch to run the steps again; `steadytrain show` works without it")

    def tell(text: str) -> None:
        if sys.stderr.isatty():
            say(f"steadytrain: {text}", err=True)

    try:
        onset = finding.find_onset(source, until=until, moved=place, wait_s=wait_s, lead_s=lead_s, tell=tell)
    except finding.CannotReplayError as refusal:
        say(f"steadytrain: cannot tell: {refusal}", err=True)
        return finding.CANNOT_TELL_STATUS
    document = finding.document_of(onset)
    keep_result(source, CommandResult("onset", True, document["why"]))
    if as_json:
        say_document(document)
    else:
        say_lines("\n".join(finding.lines(document)))
        say_next_of("diagnose", source, why="find the cause by trials")
    return onset.status
