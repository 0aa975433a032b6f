"""Plans, runs and judges trials for ``steadytrain trial`` and ``steadytrain verify``. Torch-free."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.experiments.case import Case
from steadytrain.experiments.fix_verification import FOLLOWED_MIN, Verified, plan_fix, steps_to_follow, verified
from steadytrain.experiments.specs import NotApplicable, Outcome, Spec, Verdict
from steadytrain.experiments.trial_catalog import always_run, nearest_names, plan_of, trial, trials, with_controls
from steadytrain.storage.tape_files import find_recording, read_chunk
from steadytrain.storage.tree import decode
from steadytrain.trial_runs import run_trials


@dataclass(frozen=True)
class How:
    """How trials run: parallel processes, time limit in seconds, moved files, engine."""

    workers: int = 1
    budget_s: float | None = None
    moved: str = "-"
    engine: str = "local"
    tell: Callable[[str], None] | None = None


def run_named(
    source: Path, case: Case, names: Sequence[str], how: How
) -> tuple[dict[str, Verdict], dict[str, list[Outcome]]]:
    """Runs the named trials and the controls, and judges each.

    Raises:
        UsageError: a name is unknown.
    """
    wanted = list(dict.fromkeys([*(one.name for one in always_run()), *names]))
    plans = {name: plan_of(trial(name), case) for name in wanted}
    specs = [spec for plan in plans.values() if not isinstance(plan, NotApplicable) for spec in plan]
    outcomes = _run(source, with_controls(specs, case), how)
    return _judged(case, plans, outcomes), outcomes


def verify(source: Path, case: Case, intervention: str, how: How, *, steps: int | None) -> Verified:
    """Compares a fix with the controls. ``intervention`` is a trial or intervention name, optionally with ``=VALUE``.

    Raises:
        UsageError: the intervention does not exist or does not apply.
    """
    name, _, text = intervention.partition("=")
    try:
        value = float(text) if text else None
    except ValueError:
        raise UsageError(f"--with {intervention}: {text!r} is not a number") from None
    chosen = trial(_trial_of(name))
    near = case.within_step() if chosen.within_step else case
    if any(change.kind == "reinitialize" for spec in plan_fix(near, chosen.name, value) for change in spec.changes):
        near = case = case.from_own_snapshot()  # what is drawn anew learns for as long as there are steps
    if near is case:
        followed = case.following(steps if steps is not None else steps_to_follow(case, beta2_of(source, case)))
    else:
        followed = near.following(steps if steps is not None else FOLLOWED_MIN)
    fix = plan_fix(followed, chosen.name, value)
    plans = {one.name: plan_of(one, followed) for one in always_run()}
    specs = [spec for plan in plans.values() if not isinstance(plan, NotApplicable) for spec in plan]
    outcomes = _run(source, [*specs, *fix], how)
    ran = [outcome for one in always_run() for outcome in outcomes.get(one.name, [])]
    return verified(followed, chosen, intervention, ran, outcomes.get(chosen.name, []))


def beta2_of(source: Path, case: Case) -> float | None:
    """The decay of the optimizer's second moment, from the tape; None if unknown."""
    recording = find_recording(source)
    if not recording.chunks:
        return None
    steps = read_chunk(recording.chunk_of(case.onset) or recording.chunks[-1])["steps"]
    groups: Any = decode(steps[-1]["groups"], _NoTensors())
    betas = [group["betas"][1] for optimizer in groups for group in optimizer if "betas" in group]
    return float(betas[0]) if betas and isinstance(betas[0], float) else None


def _run(source: Path, specs: Sequence[Spec], how: How) -> dict[str, list[Outcome]]:
    outcomes: dict[str, list[Outcome]] = {}
    for outcome in run_trials(
        source,
        specs,
        workers=how.workers,
        budget_s=how.budget_s,
        tell=how.tell,
        moved=how.moved,
        engine=how.engine,
    ):
        outcomes.setdefault(outcome.spec.trial, []).append(outcome)
    for those in outcomes.values():
        those.sort(key=lambda one: one.spec.repeat)
    return outcomes


def _judged(
    case: Case, plans: dict[str, tuple[Spec, ...] | NotApplicable], outcomes: dict[str, list[Outcome]]
) -> dict[str, Verdict]:
    ran = [outcome for one in always_run() for outcome in outcomes.get(one.name, [])]
    verdicts = {}
    for name, plan in plans.items():
        if isinstance(plan, NotApplicable):
            verdicts[name] = Verdict(name, "not-run", why=plan.why)
        else:
            verdicts[name] = trial(name).judge(case, ran, outcomes.get(name, []))
    return verdicts


def _trial_of(name: str) -> str:
    """The trial of that name, or the trial of the intervention of that name.

    Raises:
        UsageError: neither exists, or the intervention must be made by hand.
    """
    from steadytrain.diagnosis.cause_catalog import causes, interventions_of

    known = {one.name for one in trials()}
    if name in known:
        return name
    interventions = {one.name: one.trial for cause, made in causes().items() for one in interventions_of(cause, made)}
    if name in interventions:
        found = interventions[name]
        if found is None or found not in known:
            raise UsageError(f"--with {name}: this one is made by hand; no replay can try it")
        return found
    tried = [*known, *(one for one, found in interventions.items() if found in known)]
    raise UsageError(f"--with {name}: no trial or fix is called so; {nearest_names(name, tried)}")


class _NoTensors(dict[str, Any]):
    """Replaces tensors by None, because tensor hyper-parameters are not needed here."""

    def __missing__(self, key: str) -> None:
        return None
