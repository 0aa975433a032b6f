"""The contrast of a trial that would confirm a cause: a second seed, and a placebo. Pure.

One run in which the symptom is gone proves little. The change must remove the symptom again with other random numbers,
and a change of the same size that spares what is suspected (the trial's ``placebo``) must not. What the placebo does as
well proves nothing. Repeats and placebo run only for the trial that would confirm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from steadytrain.experiments.case import Case
from steadytrain.experiments.outcome_measures import highest_loss, place_of, steps_before_onset
from steadytrain.experiments.specs import WEAKENED, Change, NotApplicable, Outcome, Placebo, Spec, Verdict
from steadytrain.experiments.trial import Trial
from steadytrain.experiments.trial_catalog import plan_of, trial
from steadytrain.experiments.watched_rules import shows_rule

USUAL = "random-step"
"""The trial that is the placebo of those that declare none."""

SECOND_SEED = 2

LONG_AFTER_STEPS = 60
"""Steps after the onset of a contrast whose placebo helped. Any change of the weights moves a value that just reached
the edge of an operation away from it: the fault then comes again within some tens of steps, its removal lasts."""
BOOTSTRAPS, INTERVAL = 1000, 0.95


@dataclass(frozen=True)
class ContrastPlan:
    """What runs for a contrast: the trial's own specs with another seed, and its placebo."""

    trial: str
    seeds: tuple[Spec, ...]
    placebo: Placebo | NotApplicable

    @property
    def specs(self) -> tuple[Spec, ...]:
        return (*self.seeds, *(self.placebo.specs if isinstance(self.placebo, Placebo) else ()))


@dataclass(frozen=True)
class Contrast:
    """Whether a trial held against its second seed and its placebo. ``why`` says it in a sentence without subject and
    full stop; ``numbers`` hold the size of the effect with its interval; ``rows`` are the verdicts of what was run."""

    trial: str
    held: bool
    why: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    rows: tuple[Verdict, ...] = ()
    placebo_helped: bool = False
    """Whether it did not hold because the placebo removed the symptom as well."""


def plan_contrast(one: Trial, case: Case, specs: Sequence[Spec]) -> ContrastPlan:
    """The contrast of a trial with these specs."""
    if one.control:
        return ContrastPlan(one.name, (), NotApplicable("it is a control itself"))
    again = (Change("other-seed", {"seed": SECOND_SEED}), Change("one-ulp"))
    seeds = tuple(replace(spec, changes=(*spec.changes, *again)) for spec in specs)
    return ContrastPlan(one.name, seeds, placebo_of(one, case))


def placebo_of(one: Trial, case: Case) -> Placebo | NotApplicable:
    """The placebo of a trial: its own, or the usual one, from where the trial begins. That of another package may fail,
    which gives the usual."""
    case = case.within_step() if one.within_step else case
    try:
        own = one.placebo(case)
    except Exception:
        own = None
    if own is not None:
        return own
    usual = plan_of(trial(USUAL), case)
    return usual if isinstance(usual, NotApplicable) else Placebo("a random step as large as one update", usual)


def contrasted(
    one: Trial,
    case: Case,
    controls: Sequence[Outcome],
    outcomes: Sequence[Outcome],
    plan: ContrastPlan,
    ran: Sequence[Outcome],
) -> Contrast:
    """The contrast of a trial that removed the symptom.

    Args:
        controls: the unchanged and perturbed replays.
        outcomes: the runs in which the trial removed the symptom.
        plan: what was run besides.
        ran: its outcomes, in any order.
    """
    again = [outcome for outcome in ran if outcome.spec in plan.seeds]
    numbers = effect_size(case, controls, [*outcomes, *again])
    second = replace(one.judge(case, controls, again), trial=f"{one.name}-second-seed") if plan.seeds else None
    rows = (second,) if second is not None else ()
    if second is not None and second.effect != "removed":
        return Contrast(
            one.name, False, f"with another seed {one.name} did not remove it ({second.why})", numbers, rows
        )
    by_rule = any(shows_rule(case, outcome) for outcome in controls)
    if case.aim == "progress" and numbers.get("effect_high", 1.0) <= 0.0 and not by_rule:
        why = f"{one.name} does not lower the loss that makes no progress"
        return Contrast(one.name, False, why, numbers, rows)
    sized = "the same with another seed" if by_rule else _sized(numbers)
    if isinstance(plan.placebo, NotApplicable):
        return Contrast(one.name, True, sized, numbers, rows)
    what, specs = plan.placebo.what, plan.placebo.specs
    judged = one.judge(case, controls, [outcome for outcome in ran if outcome.spec in specs])
    placebo = replace(judged, trial=specs[0].trial, why=f"placebo of {one.name}: {judged.why}")
    rows = (*rows, placebo)
    if placebo.effect == "removed":
        why = f"{what} removes it as well, so {one.name} proves nothing"
        return Contrast(one.name, False, why, numbers, rows, placebo_helped=True)
    if placebo.effect == "not-run":
        return Contrast(one.name, False, f"the placebo of {one.name} ({what}) did not run: {judged.why}", numbers, rows)
    if placebo.effect == "inconclusive" and WEAKENED not in judged.numbers:
        why = f"the placebo of {one.name} ({what}) decides nothing: {judged.why}"
        return Contrast(one.name, False, why, numbers, rows)
    return Contrast(one.name, True, f"{sized}; {what} does not".removeprefix("; "), numbers, rows)


def effect_size(case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> dict[str, float]:
    """How much less the loss rises than in the controls, in nats of the script's own loss, with a 95 % interval over
    the runs and the probes (bootstrap of their means). For non-finite values: how many more steps stay finite, with the
    range over the runs. Empty if neither was measured."""
    pairs = [(control, one) for control in controls if control.ran for one in outcomes if one.ran]
    if case.aim == "finite":
        more = [float(_finite_steps(one) - _finite_steps(control)) for control, one in pairs]
        if not more:
            return {}
        return {"finite_steps": float(np.median(more)), "finite_steps_low": min(more), "finite_steps_high": max(more)}
    gains = [gain for control, one in pairs for gain in _gains(case, control, one)]
    if not gains:
        return {}
    low, high = _interval(gains)
    return {
        "effect": float(np.mean(gains)),
        "effect_low": low,
        "effect_high": high,
        "effect_samples": float(len(gains)),
    }


def _interval(gains: Sequence[float]) -> tuple[float, float]:
    """The bootstrap interval of the mean. The same numbers give the same interval."""
    source = np.random.default_rng(0)
    means = source.choice(np.asarray(gains), (BOOTSTRAPS, len(gains))).mean(1)
    low, high = np.quantile(means, [(1 - INTERVAL) / 2, (1 + INTERVAL) / 2])
    return float(low), float(high)


def _gains(case: Case, control: Outcome, outcome: Outcome) -> list[float]:
    """How much less each probe rises at its peak than in the control; without common probes, by how much the highest
    loss of a step is lower."""
    there, here = _rises(case, control), _rises(case, outcome)
    gains = [there[step] - here[step] for step in there if step in here]
    usable = [gain for gain in gains if math.isfinite(gain)]
    return usable or [highest_loss(case, control)[1] - highest_loss(case, outcome)[1]]


def _rises(case: Case, outcome: Outcome) -> dict[int | None, float]:
    """The rise of each probe to its highest loss after the onset, over its lowest before; its last loss where the
    symptom is that the loss does not fall, or is above a bound from the start on."""
    lead = max(steps_before_onset(case, outcome), 1)
    losses: dict[int | None, tuple[list[float], list[float]]] = {}
    for seen in outcome.probes:
        if seen.loss is not None:
            early, late = losses.setdefault(seen.step, ([], []))
            (early if place_of(outcome, seen.entry) < lead else late).append(seen.loss)
    if case.aim == "progress" or (case.symptom is not None and "bound" in case.symptom.numbers):
        return {step: late[-1] for step, (_, late) in losses.items() if late}
    return {step: max(late) - min(early) for step, (early, late) in losses.items() if early and late}


def _finite_steps(outcome: Outcome) -> int:
    """The number of steps before the first that is not finite; all of them if there is none."""
    bad = outcome.first_nonfinite
    return len(outcome.steps) if bad is None else place_of(outcome, bad)


def _sized(numbers: Mapping[str, float]) -> str:
    """The effect in words, "" if it was not measured."""
    if "effect" in numbers:
        effect, low, high = (f"{numbers[name]:.3g}" for name in ("effect", "effect_low", "effect_high"))
        if low == high:
            return f"the loss is {effect} lower, and the same with another seed"
        return f"the loss is {effect} lower ({low} to {high}) over two seeds"
    return "" if "finite_steps" not in numbers else "the same with another seed"
