"""``steadytrain trial``: replay recorded steps with one change, and compare with the unchanged replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from steadytrain.cli import _consent, _options
from steadytrain.cli._next import say_next_of
from steadytrain.cli._output import say, say_document, say_lines
from steadytrain.cli._progress import progress
from steadytrain.logs.numerals import counted

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case
    from steadytrain.experiments.specs import Outcome, Verdict

CANNOT_TELL_STATUS = 125


@click.command()
@click.argument("incident", required=False)
@click.argument("names", nargs=-1, metavar="NAME...")
@click.option("--all", "every", is_flag=True, help="Without NAME: also list the trials that do not apply, with why.")
@_options.workers
@click.option(
    "--budget",
    metavar="TIME",
    help=f"Start no trial after this time: 90s, 10m; a bare number is in seconds. {_options.OF_WORK}",
)
@_options.symptom
@_options.onset
@_options.tree
@_options.engine
@_options.runs_dir
@_options.allow_network
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (steadytrain.trials/1).")
@_consent.before_launch
@_options.launches
@_options.gathered(lambda: _options.TrialOptions, into="options")
def command(
    incident: str | None,
    names: tuple[str, ...],
    every: bool,
    budget: str | None,
    runs_dir: Path,
    as_json: bool,
    options: _options.TrialOptions,
) -> int:
    """Replay the steps around an incident with one change at a time.

    INCIDENT is a bundle, or a run (its most severe incident, or the run itself if it has none). Without NAME, lists the
    trials that apply (--all: the others too, with the reason); "all" runs every one that applies. Each trial is
    compared with the unchanged replay. Finished trials are saved with the incident and not run again. Exits with 0, or
    with 125 if even the unchanged replay could not run.
    """
    from steadytrain.api.targets import incident_or_run_of, needs_torch
    from steadytrain.experiments import result_table
    from steadytrain.experiments.command_results import keep_verdicts
    from steadytrain.experiments.specs import UNCHANGED, NotApplicable
    from steadytrain.experiments.trial_catalog import plan_of, trials
    from steadytrain.trial_runs.trial_session import run_named

    if incident is None:
        _list(None, None, every=True, as_json=as_json)
        return 0
    budget_s = _options.seconds(budget) if budget is not None else None
    path = incident_or_run_of(incident, runs_dir)
    case = options.case(path)
    if not names:
        _list(case, path, every=every, as_json=as_json)
        return 0
    needs_torch("trials need PyTorch to run the steps again")
    if names == ("all",):
        names = tuple(one.name for one in trials() if not isinstance(plan_of(one, case), NotApplicable))
    with progress() as tell:
        verdicts, outcomes = run_named(path, case, names, options.how(path, tell, budget_s))
    keep_verdicts(path, "trial", verdicts)
    result = result_table.document(str(path), case, verdicts, outcomes)
    late = _late(case, names, verdicts, outcomes)
    shown = [*result_table.lines(result), *([f"  {late}"] if late else [])]
    if as_json:
        say_document(result)
    else:
        say("\n".join(shown))
        say_next_of("diagnose", path, why="weigh all causes")
    return 0 if any(one.ran for one in outcomes.get(UNCHANGED, [])) else CANNOT_TELL_STATUS


def _late(
    case: Case, names: Sequence[str], verdicts: Mapping[str, Verdict], outcomes: Mapping[str, Sequence[Outcome]]
) -> str:
    """What was not run for lack of time, and how long that would take; "" if all ran."""
    from steadytrain.experiments.specs import NO_TIME_LEFT, NotApplicable
    from steadytrain.experiments.trial_catalog import plan_of, trial
    from steadytrain.trial_runs.lack_of_time import note

    plans = {name: plan_of(trial(name), case) for name in names if NO_TIME_LEFT in verdicts[name].why}
    late = {name: plan for name, plan in plans.items() if not isinstance(plan, NotApplicable)}
    return note(late, (one for ran in outcomes.values() for one in ran), case.step_s) if late else ""


def _list(case: Case | None, path: Path | None, *, every: bool, as_json: bool) -> None:
    """Print the trials that apply to ``case``, the incident at ``path``; ``every``: the others too, with the reason."""
    from steadytrain.experiments.specs import NotApplicable
    from steadytrain.experiments.trial_catalog import plan_of, summary, trials

    plans = {one.name: plan_of(one, case) if case is not None else None for one in trials()}
    if as_json:
        listed = [
            {
                "trial": one.name,
                "summary": summary(one),
                "applies": None if case is None else not isinstance(plans[one.name], NotApplicable),
                "why_not": plan.why if isinstance(plan := plans[one.name], NotApplicable) else None,
            }
            for one in trials()
        ]
        incident = str(path) if path is not None else None
        say_document({"schema": "steadytrain.trial-list/1", "incident": incident, "trials": listed})
        return
    shown = [one for one in trials() if every or not isinstance(plans[one.name], NotApplicable)]
    width = max((len(one.name) for one in shown), default=0)
    for one in shown:
        plan = plans[one.name]
        why = f"  (does not apply: {plan.why})" if isinstance(plan, NotApplicable) else ""
        say_lines(f"{one.name:<{width}}  {summary(one)}{why}")
    if others := len(plans) - len(shown):
        say_lines(f"\n{counted(others, 'other trial')} {'do' if others > 1 else 'does'} not apply here; --all says why")
