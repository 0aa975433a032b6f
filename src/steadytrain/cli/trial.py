"""``steadytrain trial``: do recorded steps again with one thing changed, beside the unchanged replay."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import click

from steadytrain.cli import _options
from steadytrain.core.errors import UsageError

CANNOT_TELL_STATUS = 125
WORKERS_DEFAULT_MAX = 4


@click.command()
@click.argument("incident", required=False)
@click.argument("names", nargs=-1, metavar="NAME...")
@_options.workers
@click.option("--budget", type=float, metavar="SECONDS", help="Begin no trial after so many seconds.")
@_options.symptom
@_options.onset
@_options.tree
@_options.engine
@_options.runs_dir
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (steadytrain.trials/1).")
@_options.launches
def command(
    incident: str | None,
    names: tuple[str, ...],
    workers: int | None,
    budget: float | None,
    symptom: str | None,
    onset: int | None,
    moved: str,
    engine: str,
    runs_dir: str,
    as_json: bool,
) -> int:
    """Do the steps around an incident again with one thing changed each, and judge each against the unchanged replay.

    INCIDENT is a bundle, or a run (its gravest incident, or the run itself where it has none). Without NAME all trials
    are listed, with why those that do not apply do not; "all" runs every one that applies. Finished trials are kept
    beside the incident and not run again. Ends with status 0, or 125 where not even the unchanged replay could be run.
    """
    from steadytrain.diagnosis.answer_files import open_story
    from steadytrain.experiments import result_table
    from steadytrain.experiments.facts import read_facts
    from steadytrain.experiments.specs import UNCHANGED, NotApplicable
    from steadytrain.experiments.trial_catalog import trials
    from steadytrain.trial_runs.trial_session import How, run_named

    if incident is None:
        _list(None)
        return 0
    if budget is not None and not budget > 0:
        raise UsageError(f"--budget {budget}: must be more than 0")
    if onset is not None and onset < 1:
        raise UsageError(f"--onset {onset}: steps count from 1")
    path = source_of(incident, Path(runs_dir))
    case = open_story(path, facts=read_facts(path), onset=onset, symptom=symptom)
    if not names:
        _list(case)
        return 0
    needs_torch()
    if names == ("all",):
        names = tuple(one.name for one in trials() if not isinstance(one.plan(case), NotApplicable))
    how = How(workers or default_workers(), budget, moved, engine, teller())
    verdicts, outcomes = run_named(path, case, names, how)
    result = result_table.document(str(path), case, verdicts, outcomes)
    click.echo(json.dumps(result, indent=1, ensure_ascii=False) if as_json else "\n".join(result_table.lines(result)))
    return 0 if any(one.ran for one in outcomes.get(UNCHANGED, [])) else CANNOT_TELL_STATUS


def source_of(incident: str | None, runs_dir: Path) -> Path:
    """The bundle, or the run itself where it has none."""
    from steadytrain.storage.run_search import find, incident_or_run

    return incident_or_run(find(incident or None, runs_dir))


def needs_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise UsageError("trials need PyTorch to run the steps again; `steadytrain show` works without it")


def default_workers() -> int:
    return max(1, min(WORKERS_DEFAULT_MAX, os.cpu_count() or 1))


def teller() -> Callable[[str], None] | None:
    """Progress, on a terminal only."""
    if not sys.stderr.isatty():
        return None
    return lambda line: click.echo(f"steadytrain: {line}", err=True)


def _list(case: object) -> None:
    from steadytrain.experiments.case import Case
    from steadytrain.experiments.specs import NotApplicable
    from steadytrain.experiments.trial_catalog import summary, trials

    width = max(len(one.name) for one in trials())
    for one in trials():
        plan = one.plan(case) if isinstance(case, Case) else None
        why = f"  (does not apply: {plan.why})" if isinstance(plan, NotApplicable) else ""
        click.echo(f"{one.name:<{width}}  {summary(one)}{why}")
