"""``steadytrain fix``: make a patch of the script for the cause, and run the patched copy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from steadytrain.cli import _consent, _options
from steadytrain.cli._next import say_next, say_next_of
from steadytrain.cli._output import say, say_document, say_lines
from steadytrain.cli._progress import progress
from steadytrain.core.own_command import pasteable

if TYPE_CHECKING:
    from steadytrain.trial_runs.fixing import Fixed

REMOVED_STATUS, NOT_REMOVED_STATUS, CANNOT_TELL_STATUS = 0, 1, 125


@click.command()
@click.argument("incident", required=False, metavar="[INCIDENT|RUN]")
@click.option(
    "--budget",
    default="10m",
    show_default=True,
    metavar="TIME",
    help="Time for the diagnosis, if none is stored, and for the patched script: 90s, 10m.",
)
@click.option("--write", "writes", is_flag=True, help="Write the patch into the script if it removes the symptom.")
@_options.tree
@_options.runs_dir
@_options.allow_network
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (steadytrain.fix/1).")
@_consent.before_launch
def command(incident: str | None, budget: str, writes: bool, moved: str, runs_dir: Path, as_json: bool) -> int:
    """Make a patch of the script for the cause, and run the patched copy.

    INCIDENT is a bundle, or a run; by default the newest. Diagnoses it, unless that was done. Makes a unified diff of
    the script's own lines where that is safe, runs a patched copy from its start under watch, and shows whether the
    symptom came again. Without --write nothing is changed; with it a .orig is kept unless git holds the script. Exits
    with 0 if a patch removes the symptom, 1 if not, 125 if it cannot decide or no patch can be made.
    """
    from steadytrain.api import fixes

    budget_s = _options.seconds(budget)
    with progress() as tell:
        fixed = fixes.fix(incident, budget_s=budget_s, moved=moved, runs_dir=runs_dir, tell=tell)
    written = fixes.write(fixed, moved=moved) if writes and fixed.effect == "removed" else None
    if as_json:
        say_document(fixed.to_json())
    else:
        _print(fixed)
        if writes and fixed.effect == "removed":
            changed = fixed.patch.script if fixed.patch is not None else fixed.script
            say(f"written: {changed}{f'; the old one is {written}' if written is not None else ''}")
        elif fixed.effect == "removed":
            say("nothing was written; --write changes the script")
        elif writes:
            say("nothing was written: no patch was seen to remove the symptom")
        source = Path(fixed.incident)
        if fixed.effect == "removed" and not writes:
            say_next_of("fix", source, "--write", why="write the patch into the script")
        elif fixed.effect == "removed":
            _say_run_again(source)
        else:
            say_next_of("report", source, why="the evidence on one page")
    if fixed.effect == "removed":
        return REMOVED_STATUS
    return CANNOT_TELL_STATUS if fixed.effect in ("inconclusive", "not-run") else NOT_REMOVED_STATUS


def _say_run_again(source: Path) -> None:
    from steadytrain.replay.launch_notice import words_to_run_again

    words = words_to_run_again(source)
    if words is None:
        say_next_of("checklist", source, why="what is left to do")
    else:
        say_next("run", *words, why="the patched script, from its start to its end")


def _print(fixed: Fixed) -> None:
    from steadytrain.experiments.fix_verification import MEANINGS
    from steadytrain.report.wording import clean

    say_lines(f"{fixed.status or 'cause'}: {fixed.verdict}")
    for one in fixed.tried:
        say_lines(f"\n{clean(one.what)} ({clean(one.cause)}): {MEANINGS.get(one.effect, one.effect)}")
        say_lines(f"  {clean(one.why)}")
        if one.loss_before is not None and one.loss_after is not None:
            before, after = _number(one.loss_before), _number(one.loss_after)
            say_lines(f"  loss at the last step that both made: {before} without the patch, {after} with it")
    if fixed.patch is not None:
        say(f"\n{fixed.patch.diff}")
        return
    for why in fixed.why_none:
        say_lines(f"no patch: {clean(why)}")
    if fixed.nearest:
        say_lines(f"the nearest fix, on the replay:\n  {pasteable(clean(fixed.nearest))}")


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"
