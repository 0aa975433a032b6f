"""Runs the contrast of the trials that would confirm a cause: a second seed and a placebo. Torch-free."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass

from steadytrain.diagnosis.conclusion import LIKELY_MIN
from steadytrain.diagnosis.proof import Control, proof
from steadytrain.diagnosis.weighing import Suspect, weigh
from steadytrain.experiments.case import Case
from steadytrain.experiments.contrast import LONG_AFTER_STEPS, Contrast, ContrastPlan, contrasted, plan_contrast
from steadytrain.experiments.specs import NO_TIME_LEFT, UNCHANGED, NotApplicable, Outcome, Placebo, Spec, Verdict
from steadytrain.experiments.trial import Trial
from steadytrain.experiments.trial_catalog import plan_of, trial

Run = Callable[[str, Sequence[Spec]], Sequence[Outcome]]
"""Says a line and runs specs."""


@dataclass(frozen=True)
class Known:
    """What a diagnosis knows before a contrast: ``waiting`` are the trials that could still run, ``controls`` the
    controls that ran."""

    suspects: Sequence[Suspect]
    verdicts: Mapping[str, Verdict]
    control: Control
    waiting: Collection[str]
    surveyed: bool
    controls: Sequence[Outcome]


def run_contrasts(
    known: Known,
    case: Case,
    outcomes: Mapping[str, list[Outcome]],
    contrasts: MutableMapping[str, Contrast],
    run: Run,
) -> bool:
    """Runs the contrasts that the most probable cause lacks for its proof, and adds them to ``contrasts``. Returns
    False if the time was over before they were finished."""
    while name := awaited(known, contrasts):
        found = run_contrast(name, case, known.controls, outcomes, run)
        if found is None:
            return False
        contrasts[name] = found
    return True


def awaited(known: Known, contrasts: Mapping[str, Contrast]) -> str | None:
    """The trial whose contrast is all that the most probable cause lacks, None if there is none."""
    belief = weigh(known.suspects, known.verdicts.values(), contrasts)
    for one in known.suspects:
        if belief[one.name] >= LIKELY_MIN:
            found = proof(
                one, known.verdicts, known.control, known.waiting, surveyed=known.surveyed, contrasts=contrasts
            )
            return found.contrast or None
    return None


def run_contrast(
    name: str,
    case: Case,
    controls: Sequence[Outcome],
    known: Mapping[str, list[Outcome]],
    run: Run,
) -> Contrast | None:
    """The contrast of the trial ``name``, None if the time was over before it was finished. ``known`` are the outcomes
    so far: what is among them does not run again."""
    one, outcomes = trial(name), known[name]
    # Of several runs (a batch alone, with its neighbours) the first that suffices is repeated.
    enough = [outcome for outcome in outcomes if one.judge(case, controls, [outcome]).effect == "removed"]
    outcomes = enough[:1] or outcomes
    plan = plan_contrast(one, case, [outcome.spec for outcome in outcomes])
    have = [outcome for those in known.values() for outcome in those if outcome.spec in plan.specs]
    missing = [spec for spec in plan.specs if spec not in [outcome.spec for outcome in have]]
    ran = [*have, *(run(_line(plan), missing) if missing else ())]
    if any(outcome.why_not == NO_TIME_LEFT for outcome in ran) or len(ran) < len(plan.specs):
        return None
    found = contrasted(one, case, controls, outcomes, plan, ran)
    if found.placebo_helped and case.aim == "finite" and case.after is None:
        return _over_more_steps(one, case, run, found)
    return found


def _over_more_steps(one: Trial, case: Case, run: Run, short: Contrast) -> Contrast | None:
    """The contrast over more steps, where a placebo only delays what the trial removes; ``short`` if that cannot
    run, None if the time was over."""
    longer = case.following(LONG_AFTER_STEPS)
    own, unchanged = plan_of(one, longer), plan_of(trial(UNCHANGED), longer)
    if isinstance(own, NotApplicable) or isinstance(unchanged, NotApplicable):
        return short
    plan = plan_contrast(one, longer, own)
    ran = run(f"{_line(plan)}, over more steps", [*unchanged, *own, *plan.specs])
    if any(outcome.why_not == NO_TIME_LEFT for outcome in ran) or len(ran) < len(own) + len(plan.specs) + 1:
        return None
    controls = [outcome for outcome in ran if outcome.spec in unchanged]
    outcomes = [outcome for outcome in ran if outcome.spec in own]
    if one.judge(longer, controls, outcomes).effect != "removed":
        return short
    return contrasted(one, longer, controls, outcomes, plan, ran)


def _line(plan: ContrastPlan) -> str:
    what = f" and its placebo ({plan.placebo.what})" if isinstance(plan.placebo, Placebo) else ""
    return f"trying {plan.trial} with another seed{what}"
