"""``steadytrain verify``: test a fix on the replay, compared with the unchanged replay, and measure its price."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from steadytrain.cli import _consent, _options
from steadytrain.cli._next import say_next_of
from steadytrain.cli._output import say, say_document, say_lines
from steadytrain.cli._progress import progress
from steadytrain.core.errors import UsageError
from steadytrain.core.own_command import NAME, pasteable
from steadytrain.experiments.specs import LOOP_OVER
from steadytrain.logs.numerals import counted

if TYPE_CHECKING:
    from steadytrain.experiments.fix_verification import Verified

DROP_BATCH = "drop-batch"
COMES_AGAIN = "  the script's own batches after the tape may hold the same rows again: leave them out of the data set"

REMOVED_STATUS, NOT_REMOVED_STATUS, CANNOT_TELL_STATUS = 0, 1, 125


@click.command()
@click.argument("incident", required=False)
@click.option(
    "--with",
    "intervention",
    required=True,
    metavar="NAME[=VALUE]",
    help="Trial or intervention, optionally with a number.",
)
@click.option(
    "--steps",
    type=int,
    help="Steps after the onset, at most to the end of the script; by default as many as the optimizer remembers.",
)
@_options.workers
@_options.symptom
@_options.onset
@_options.tree
@_options.engine
@_options.runs_dir
@_options.allow_network
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (steadytrain.verify/1).")
@_consent.before_launch
@_options.launches
@_options.gathered(lambda: _options.TrialOptions, into="options")
def command(
    incident: str | None,
    intervention: str,
    steps: int | None,
    runs_dir: Path,
    as_json: bool,
    options: _options.TrialOptions,
) -> int:
    """Test a fix: apply it on the replay of an incident and compare.

    Follows the changed replay for enough steps and compares it with the unchanged one. INCIDENT is a bundle, or a run;
    by default the newest. `steadytrain trial` lists the names; a number after `=` replaces the trial's own
    (`learning-rate-third=0.5`). Exits with 0 if the fix removes the symptom, 1 if not, 125 if it cannot decide.
    """
    from steadytrain.api.targets import incident_or_run_of, needs_torch
    from steadytrain.experiments.command_results import keep_verdicts
    from steadytrain.experiments.fix_verification import FOLLOWED_MAX
    from steadytrain.guard.fixes import handed_on
    from steadytrain.storage.bundle import is_bundle
    from steadytrain.trial_runs.trial_session import verify

    if steps is not None and not 1 <= steps <= FOLLOWED_MAX:
        raise UsageError(f"--steps {steps}: between 1 and {FOLLOWED_MAX}")
    path = incident_or_run_of(incident, runs_dir)
    case = options.case(path)
    needs_torch("trials need PyTorch to run the steps again")
    with progress() as tell:
        found = verify(path, case, intervention, options.how(path, tell), steps=steps)
    keep_verdicts(path, "verify", {found.verdict.trial: found.verdict})
    if as_json:
        say_document(found.to_json(str(path)))
    else:
        _print(found, case.onset)
        if found.verdict.effect == "removed":
            fix = handed_on(case, found.verdict.trial, found.intervention)
            if fix is not None and is_bundle(path):
                line = f"{NAME} run --resume-from {shlex.quote(str(path))} --with {fix} SCRIPT"
                say(f"to go on from before the incident with this fix: {pasteable(line)}")
            say_next_of("fix", path, why="makes a patch of the script and runs it")
        else:
            if found.verdict.effect == "delayed" and found.verdict.trial == DROP_BATCH:
                say(COMES_AGAIN)
            _say_what_else(path)
    if found.verdict.effect == "removed":
        return REMOVED_STATUS
    return CANNOT_TELL_STATUS if found.verdict.effect in ("inconclusive", "not-run") else NOT_REMOVED_STATUS


def _say_what_else(path: Path) -> None:
    """The next command after a fix that does not help: a patch, if the cause that was found has one."""
    from steadytrain.diagnosis import answer_files
    from steadytrain.diagnosis.patches.table import has_recipe

    answer = answer_files.read(path)
    if answer is not None and answer.status is not None and has_recipe(answer.verdict):
        say_next_of("fix", path, why="makes a patch of the script and runs it")
    else:
        say_next_of("diagnose", path, why="find the cause by trials")


def _print(found: Verified, onset: int) -> None:
    say_lines(f"{found.intervention}: {found.meaning}")
    say_lines(f"  {found.verdict.why}")
    for change in found.changed:
        say_lines(f"  changed: {change}")
    if found.verdict.effect != "not-run":
        over = (found.ended or "").startswith(LOOP_OVER)
        why = ": the script ends there" if over else f"; {found.ended}" if found.ended else ""
        say_lines(f"  followed for {counted(found.followed, 'step')} after the onset at step {onset}{why}")
    if found.price_before is not None:
        say_lines(
            f"  its price before the onset: {found.price_before:+.3g} in the loss on fixed batches, against the "
            "unchanged replay"
        )
    if found.price_end is not None:
        say_lines(
            f"  at the end: {found.price_end:+.3g} in the loss on fixed batches, against the unchanged replay, symptom "
            "included"
        )
