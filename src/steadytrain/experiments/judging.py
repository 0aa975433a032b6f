"""What outcomes of a trial say against those of its controls. Pure.

Finite symptoms are judged on the fixed probe set: how far its loss rises over what it was at the beginning, at its
peak and in the end, against the same numbers of the control. Where the incident did no damage that the probes show (a
clipped spike), the gradient or the update is compared where the symptom is about it, then the losses of the steps, and
that is said.
Values that are not finite are judged by when the first came. A run that does not learn is judged by how far the probes
fall.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from steadytrain.experiments.case import Case
from steadytrain.experiments.specs import UNCHANGED, Effect, Outcome, Verdict

REMOVED_SHARE = 0.25
"""Of the control's excess: below it the symptom is gone (mini-matrix: a removed bad batch left .14, LR/10 .06)."""

PERSISTS_SHARE, WORSE_SHARE = 0.5, 1.5
"""Of the control's excess: between them it is as in the control; between removed and persists nothing is concluded."""

BURST_TIMES, BURST_SHARE = 10.0, 0.01
"""A rise of so many times the first loss is a symptom of its own, though that of the control is larger: bursts grow by
powers, and a fifth of a million is no cure. A hundredth of the control's is taken for one."""

FLOOR_SHARE = 0.01
"""Of the probe loss at the beginning: smaller differences are noise whatever the controls say."""

STILL_SHARE = 1e-4
"""Of the probe loss: rounding, a mean over few samples aside."""

SPREADS = 3.0
"""Spreads of the perturbed controls under which a difference is noise."""

WOBBLES = 2.0
"""What the probes move before the onset, so many times, is no symptom after it."""

DELAYED_ENTRIES = 3
"""How much later a value that is not finite has to come to be called delayed and not the same."""

SPIKE_NOISES = 6.0
"""A loss of a step is high where it lies so many noises over the losses before the onset."""

GROWTH_MIN = math.log(2.0)
"""A gradient or an update that does not double is as it was."""

LOWER_QUANTILE = 0.25
"""Of the values before the onset: what grows slowly has grown for a while when it is raised."""

_QUANTITIES = {
    "exploding-gradients": ("gradient_norm", "gradient norm"),
    "gradient-norm-spike": ("gradient_norm", "gradient norm"),
    "update-norm-spike": ("update_ratio", "update"),
    "second-moment-lag": ("update_ratio", "update"),
}
"""What a symptom is about that neither the probes nor the losses of the steps have to show."""

OF_THE_RATE = frozenset({"learning-rate", "fixed-learning-rate", "ramp-learning-rate"})
"""Changes of nothing but the learning rate."""

PROGRESS_FACTOR = 3.0
"""A run that did not learn does learn where its probes fall by so many times what they fell in the control."""


@dataclass(frozen=True)
class Excess:
    """How far the probe loss rose over its first value: at its peak, and in the end (nats of the script's own loss)."""

    first: float
    peak: float
    final: float
    finite: bool


def excess_of(outcome: Outcome) -> Excess | None:
    """None where the outcome has no two points of probes."""
    points = _points(outcome)
    if len(points) < 2:
        return None
    means = [float(np.mean(losses)) for _, losses in points]
    finite = all(math.isfinite(mean) for mean in means)
    rises = [mean - means[0] if math.isfinite(mean) else math.inf for mean in means[1:]]
    return Excess(means[0], _peak(rises), rises[-1], finite)


def _peak(rises: Sequence[float]) -> float:
    """The highest rise that two points in a row have, or the last: a single point may be a batch that the script makes
    otherwise in one step of its own count, where the probe was made by the script."""
    pairs = [min(pair) for pair in pairwise(rises)]
    return max([*pairs, rises[-1]])


def judge(trial: str, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
    """The verdict of ``outcomes`` (repeats of one trial) against ``controls`` (unchanged and perturbed replays)."""
    control = unchanged(controls)
    ran = [one for one in outcomes if one.ran]
    if not ran:
        return not_run(trial, outcomes)
    if control is None:
        return Verdict(trial, "inconclusive", why="there is no control to compare with")
    verdicts = [_noted(_judge_one(trial, case, control, controls, one), one) for one in ran]
    effects = {verdict.effect for verdict in verdicts}
    if len(effects) == 1:
        return verdicts[0]
    said = ", ".join(sorted(effects))
    return Verdict(trial, "inconclusive", verdicts[0].numbers, f"its {len(verdicts)} runs differ: {said}")


def unchanged(controls: Sequence[Outcome]) -> Outcome | None:
    """The unchanged replay among the controls, where it ran."""
    return next((one for one in controls if one.ran and one.spec.trial == UNCHANGED), None)


def not_run(trial: str, outcomes: Sequence[Outcome], otherwise: str = "nothing was run") -> Verdict:
    """The verdict of a trial of which nothing ran: why not, as the first of its outcomes says."""
    why = next((one.why_not for one in outcomes if one.why_not), otherwise)
    return Verdict(trial, "not-run", why=str(why))


def shows(case: Case, control: Outcome, controls: Sequence[Outcome]) -> tuple[bool, str]:
    """Whether an unchanged replay shows the symptom at all, and in words what it shows."""
    if not control.ran:
        return False, str(control.why_not)
    if case.aim == "finite":
        at = control.first_nonfinite
        return at is not None, "a value is not finite" if at is not None else "every value is finite"
    if case.aim == "progress":
        excess = excess_of(control)
        return excess is not None, "no probes" if excess is None else f"probe loss changes by {excess.final:+.3g}"
    excess = excess_of(control)
    if excess is not None and excess.peak > _floor(case, excess, controls):
        return True, f"probe loss rises by {excess.peak:.3g}"
    growth = _growth(case, control, control)
    if growth > GROWTH_MIN:
        return True, f"the {_QUANTITIES[_name(case)][1]} grows {math.exp(growth):.3g} times"
    high, by = _highest(case, control)
    if high:
        return True, f"the loss of a step is {by:.3g} over those before"
    return False, "nothing rises"


def measures(case: Case) -> bool:
    """Whether a trial sees what the symptom is about; else that nothing rises says nothing. Losses do not show a moment
    that is not finite."""
    if case.symptom is None or case.aim != "excess" or not case.symptom.signals:
        return True
    return _name(case) in _QUANTITIES or bool({"loss", "gradient_norm"} & set(case.symptom.signals))


def _noted(verdict: Verdict, outcome: Outcome) -> Verdict:
    """Of a change without any effect it is said that it had none."""
    if not outcome.exact or not outcome.spec.changes:
        return verdict
    return replace(verdict, why=f"{verdict.why}; with the change every number is as recorded, to the last bit")


def _judge_one(trial: str, case: Case, control: Outcome, controls: Sequence[Outcome], outcome: Outcome) -> Verdict:
    shown, what = shows(case, control, controls)
    numbers = _numbers(case, control, outcome)
    if not shown:
        return Verdict(trial, "inconclusive", numbers, f"the unchanged replay does not show the symptom: {what}")
    short = _short(control, outcome)
    if case.aim == "finite":
        return _judge_finite(trial, control, outcome, numbers, short)
    if outcome.first_nonfinite is not None and control.first_nonfinite is None:
        return Verdict(trial, "worse", numbers, "a value is not finite, which the control does not show")
    if case.aim == "progress":
        return _judge_progress(trial, case, controls, control, outcome, numbers)
    there, here = excess_of(control), excess_of(outcome)
    if control.first_nonfinite is not None:
        verdict = _judge_finite(trial, control, outcome, numbers, short)
        rose = here is not None and here.peak > _floor(case, here, controls)
        if verdict.effect != "removed" or not rose:
            return verdict
        return Verdict(trial, "delayed", numbers, "finite to the end, where the control is not, but the loss rises")
    floor = _floor(case, there, controls) if there is not None else 0.0
    if there is not None and here is not None and there.peak > floor:
        effect = _by_share(here.peak, there.peak, floor)
        why = f"probe loss rises by {here.peak:.3g}, in the control by {there.peak:.3g}"
        if effect == "removed" and short is not None:
            return Verdict(trial, "inconclusive", numbers, short)
        burst = here.peak > max(BURST_TIMES * abs(here.first), floor) and here.peak > BURST_SHARE * there.peak
        if effect == "removed" and burst:
            return Verdict(trial, "inconclusive", numbers, f"{why}: less, but it bursts as well")
        return Verdict(trial, effect, numbers, why)
    # What the symptom is about comes before the losses of the steps: a hard batch near it is another story.
    grown, grows = _growth(case, control, control), _growth(case, control, outcome)
    if grown > GROWTH_MIN:
        why = (
            f"the {_QUANTITIES[_name(case)][1]} grows {math.exp(grows):.3g} times, in the control {math.exp(grown):.3g}"
        )
        effect = _by_share(grows, grown, 0.0)
        kinds = {change.kind for change in outcome.spec.changes}
        if effect == "removed" and kinds and kinds <= OF_THE_RATE and _QUANTITIES[_name(case)][0] == "update_ratio":
            return Verdict(trial, "inconclusive", numbers, f"{why}; a smaller rate makes smaller updates by itself")
        return Verdict(trial, effect, numbers, why)
    there_by, here_by = _highest(case, control)[1], _highest(case, outcome)[1]
    effect = _by_share(here_by, there_by, case.loss_noise())
    why = f"loss of a step {here_by:.3g} over those before, in the control {there_by:.3g}; the probes show no damage"
    return Verdict(trial, effect, numbers, why)


def _judge_finite(
    trial: str, control: Outcome, outcome: Outcome, numbers: dict[str, float], short: str | None
) -> Verdict:
    there, here = control.first_nonfinite, outcome.first_nonfinite
    assert there is not None
    if here is None:
        if short is not None:
            return Verdict(trial, "inconclusive", numbers, short)
        return Verdict(trial, "removed", numbers, "every value is finite to the end")
    refused = sum(entry.role == "refused" for entry in outcome.spec.schedule)
    later = _place(outcome, here) - _place(control, there)
    if later >= DELAYED_ENTRIES + refused:
        return Verdict(trial, "delayed", numbers, f"not finite {later} steps later than in the control")
    if later < 0:
        return Verdict(trial, "worse", numbers, f"not finite {-later} steps before the control")
    return Verdict(trial, "persists", numbers, "not finite as in the control")


def _judge_progress(
    trial: str,
    case: Case,
    controls: Sequence[Outcome],
    control: Outcome,
    outcome: Outcome,
    numbers: dict[str, float],
) -> Verdict:
    there, here = excess_of(control), excess_of(outcome)
    if there is None or here is None:
        return Verdict(trial, "inconclusive", numbers, "no probes to judge progress by")
    still = min(_floor(case, there, controls), _unsteadiness(there, controls))
    fell, fell_there = -here.final, max(-there.final, 0.0)
    why = f"probe loss changes by {here.final:+.3g}, in the control by {there.final:+.3g}"
    if fell > PROGRESS_FACTOR * fell_there + still:
        return Verdict(trial, "removed", numbers, why)
    if here.final > there.final + max(_floor(case, there, controls), abs(there.final)):
        return Verdict(trial, "worse", numbers, why)
    if fell > 1.5 * fell_there + still:
        return Verdict(trial, "inconclusive", numbers, why)
    return Verdict(trial, "persists", numbers, why)


def _unsteadiness(excess: Excess, controls: Sequence[Outcome]) -> float:
    """What the probe loss moves by from point to point in the controls: who stands quite still is seen to begin to move
    long before it has come a hundredth of the way."""
    moves = [
        abs(after - before)
        for control in controls
        if control.ran
        for before, after in pairwise([float(np.mean(losses)) for _, losses in _points(control)])
    ]
    return max(STILL_SHARE * abs(excess.first), SPREADS * max(moves, default=math.inf))


def _by_share(here: float, there: float, floor: float) -> Effect:
    if here <= max(REMOVED_SHARE * there, floor):
        return "removed"
    if here > WORSE_SHARE * there + floor:
        return "worse"
    return "persists" if here >= PERSISTS_SHARE * there else "inconclusive"


def _short(control: Outcome, outcome: Outcome) -> str | None:
    """Why a trial that ended before its control says nothing about what would have come."""
    if outcome.ended is None or len(outcome.steps) >= len(control.steps):
        return None
    return f"it ended {len(control.steps) - len(outcome.steps)} steps before the control: {outcome.ended}"


def _floor(case: Case, excess: Excess, controls: Sequence[Outcome]) -> float:
    """What the probe loss moves by without a symptom: from control to control, and before the onset."""
    ran = [one for one in controls if one.ran]
    peaks = [found.peak for one in ran if (found := excess_of(one)) is not None and found.finite]
    spread = max(peaks) - min(peaks) if len(peaks) > 1 else 0.0
    # Controls that differ by as much as the symptom itself would make every difference noise.
    spread = min(SPREADS * spread, REMOVED_SHARE * excess.peak)
    wobble = WOBBLES * max((_moved_before(case, one) for one in ran), default=0.0)
    return max(FLOOR_SHARE * abs(excess.first), spread, wobble)


def _moved_before(case: Case, control: Outcome) -> float:
    """How far the probe loss went up and down before the onset, in a control: a rise by no more is no symptom."""
    if case.aim == "progress":
        return 0.0
    lead = case.onset - (control.spec.begin or 0) - 1
    means = [float(np.mean(losses)) for place, losses in _points(control) if place < lead]
    return max(means) - min(means) if means and all(map(math.isfinite, means)) else 0.0


def _highest(case: Case, outcome: Outcome) -> tuple[bool, float]:
    """How far the highest loss of a trained step lies over those before the onset, and whether that is a spike."""
    losses = [
        (_place(outcome, seen.entry), seen.loss) for seen in outcome.steps if seen.loss is not None and seen.finite
    ]
    lead = max(case.onset - (outcome.spec.begin or 0) - 1, 0)
    before = [loss for place, loss in losses if place < lead]
    after = [loss for place, loss in losses if place >= lead]
    base = case.typical("loss") if not before else float(np.median(before))
    if base is None or not after:
        return False, 0.0
    by = max(after) - base
    return by > SPIKE_NOISES * case.loss_noise(), by


def _growth(case: Case, control: Outcome, outcome: Outcome) -> float:
    """Logarithm of how far what the symptom is about grew after the onset over its lower values before it, in the
    control; 0 where that is not known."""
    quantity = _QUANTITIES.get(_name(case))
    if quantity is None:
        return 0.0
    there, here = (
        [
            (place - max(case.onset - (one.spec.begin or 0) - 1, 0), value)
            for place, seen in enumerate(one.steps)
            if (value := getattr(seen, quantity[0])) is not None and math.isfinite(value) and value > 0
        ]
        for one in (control, outcome)
    )
    before = [value for place, value in there if place < 0] or [value for _, value in there[:1]]
    after = [value for place, value in here if place >= 0]
    return math.log(max(after) / float(np.quantile(before, LOWER_QUANTILE))) if before and after else 0.0


def _name(case: Case) -> str:
    return case.symptom.name if case.symptom is not None else ""


def _numbers(case: Case, control: Outcome, outcome: Outcome) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for lead, one in (("", outcome), ("control_", control)):
        excess = excess_of(one)
        if excess is not None:
            numbers |= {f"{lead}peak_excess": excess.peak, f"{lead}final_excess": excess.final}
        bad = first_bad_step(case, one)
        if bad is not None:
            numbers[f"{lead}first_bad_step"] = float(bad)
    numbers["seconds"] = outcome.seconds
    return numbers


def first_bad_step(case: Case, outcome: Outcome) -> int | None:
    """The step, counted as in the recorded run, whose loss was first not finite or a spike."""
    begin = outcome.spec.begin or 0
    if outcome.first_nonfinite is not None:
        return begin + 1 + _place(outcome, outcome.first_nonfinite)
    base, noise = case.typical("loss"), case.loss_noise()
    if base is None or case.aim != "excess":
        return None
    for seen in outcome.steps:
        if seen.loss is not None and seen.loss > base + SPIKE_NOISES * max(noise, FLOOR_SHARE * abs(base)):
            return begin + 1 + _place(outcome, seen.entry)
    return None


def _place(outcome: Outcome, entry: int) -> int:
    """The place of an entry among those that are no probes."""
    return sum(one.role != "probe" for one in outcome.spec.schedule[:entry])


def _points(outcome: Outcome) -> list[tuple[int, list[float]]]:
    """The losses of the probes, by the number of steps before them."""
    points: dict[int, list[float]] = {}
    for seen in outcome.probes:
        if seen.loss is not None:
            points.setdefault(_place(outcome, seen.entry), []).append(seen.loss)
    return sorted(points.items())
