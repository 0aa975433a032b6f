"""``steadytrain verify``: a fix on the replay, against the unchanged replay, and its price."""

from __future__ import annotations

import json
from pathlib import Path

import click

from steadytrain.cli import _options
from steadytrain.core.errors import UsageError

REMOVED_STATUS, NOT_REMOVED_STATUS, CANNOT_TELL_STATUS = 0, 1, 125


@click.command()
@click.argument("incident", required=False)
@click.option(
    "--with", "intervention", required=True, metavar="NAME[=VALUE]", help="A trial or intervention, maybe its number."
)
@click.option("--steps", type=int, help="Steps after the onset; by default max(10, 3 x lead, 1/(1-beta2)).")
@_options.workers
@_options.symptom
@_options.onset
@_options.tree
@_options.engine
@_options.runs_dir
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (steadytrain.verify/1).")
@_options.launches
def command(
    incident: str | None,
    intervention: str,
    steps: int | None,
    workers: int | None,
    symptom: str | None,
    onset: int | None,
    moved: str,
    engine: str,
    runs_dir: str,
    as_json: bool,
) -> int:
    """Apply a fix on the replay of an incident, follow it for long enough, and compare it with the unchanged replay.

    INCIDENT is a bundle, or a run; by default the newest. `steadytrain trial` lists the names; a number after `=` takes
    the place of the one that the trial has (`learning-rate-third=0.5`). Ends with status 0 when the symptom is removed,
    1 when it is not, 125 when that cannot be told.
    """
    from steadytrain.cli.trial import default_workers, needs_torch, source_of, teller
    from steadytrain.diagnosis.answer_files import open_story
    from steadytrain.experiments.facts import read_facts
    from steadytrain.experiments.fix_verification import FOLLOWED_MAX, MEANINGS
    from steadytrain.trial_runs.trial_session import How, verify

    if steps is not None and not 1 <= steps <= FOLLOWED_MAX:
        raise UsageError(f"--steps {steps}: between 1 and {FOLLOWED_MAX}")
    if onset is not None and onset < 1:
        raise UsageError(f"--onset {onset}: steps count from 1")
    path = source_of(incident, Path(runs_dir))
    case = open_story(path, facts=read_facts(path), onset=onset, symptom=symptom)
    needs_torch()
    how = How(workers or default_workers(), None, moved, engine, teller())
    found = verify(path, case, intervention, how, steps=steps)
    if as_json:
        click.echo(json.dumps(found.to_json(str(path)), indent=1, ensure_ascii=False))
    else:
        click.echo(f"{intervention}: {MEANINGS[found.verdict.effect]}")
        click.echo(f"  {found.verdict.why}")
        click.echo(f"  followed for {found.followed} steps after the onset at step {case.onset}")
        for when, price in (("before the onset", found.price_before), ("at the end", found.price_end)):
            if price is not None:
                click.echo(f"  probe loss {when}: {price:+.3g} against the unchanged replay")
    if found.verdict.effect == "removed":
        return REMOVED_STATUS
    return CANNOT_TELL_STATUS if found.verdict.effect in ("inconclusive", "not-run") else NOT_REMOVED_STATUS
