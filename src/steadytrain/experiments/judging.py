"""Judge the outcomes of a trial against those of its controls. Pure.

Less than the control is not enough: only a run that is back to health (``health``) had its symptom removed. A symptom
that comes later is *delayed*, one that is smaller is *weakened* (inconclusive); neither proves anything.

Finite symptoms are judged on the fixed probes: the rise of their loss at the peak and at the end, beside the control's.
If they show no damage, the gradient or the update decides if the symptom is about it, else the losses of the steps.
Non-finite values are judged by when they came, no learning by the fall of the probe loss, a broken rule by the rule.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from steadytrain.experiments.case import Case
from steadytrain.experiments.health import ailment, ailment_at_end, first_ill_place
from steadytrain.experiments.outcome_measures import (
    QUANTITIES,
    REMOVED_SHARE,
    Excess,
    excess_in,
    growth_of,
    highest_loss,
    last_probe,
    noise_floor,
    numbers_of,
    place_of,
    probe_means,
    quantity_of,
    unsteadiness,
    usual_growth,
)
from steadytrain.experiments.specs import UNCHANGED, WEAKENED, Effect, Outcome, Verdict
from steadytrain.experiments.training_fall import compared, fall_of, learns_as_little, learns_more
from steadytrain.experiments.trial_starts import EARLY_ONSET
from steadytrain.experiments.watched_rules import judged_by_rule, shows_rule

PERSISTS_SHARE, WORSE_SHARE = 0.5, 1.5
"""Fractions of the control's excess. Between them the symptom persists; between removed and persists the trial is
inconclusive."""

DELAYED_ENTRIES = 3
"""A non-finite value must come this many entries later to count as delayed."""

GROWTH_MIN, CLEAR_RISE = math.log(2.0), 2.0
"""A gradient or an update counts as grown only if it doubles. Beside it, a loss has to rise by so many times its noise.
"""

PROGRESS_FACTOR, PROGRESS_UNCLEAR_FACTOR = 3.0, 1.5
"""A run that did not learn is cured if its probe loss falls by the first factor times the control's fall. Between the
two factors the trial is inconclusive."""


def judge(
    trial: str,
    case: Case,
    controls: Sequence[Outcome],
    outcomes: Sequence[Outcome],
    *,
    rate_only: bool = False,
    own_scale: bool = False,
) -> Verdict:
    """The verdict of ``outcomes`` (repeats of one trial) against ``controls`` (unchanged and perturbed replays).
    ``rate_only``: the trial changes only the learning rate. ``own_scale``: it changes what the loss or the gradient
    measures, so that the run's range before the onset is no reference."""
    ran = [one for one in outcomes if one.ran]
    if not ran:
        return not_run(trial, outcomes)
    if unchanged(controls) is None:
        return Verdict(trial, "inconclusive", why="there is no control to compare with")
    found = [(one, unchanged(controls, one.spec.begin)) for one in ran]
    pairs = [(one, control) for one, control in found if control is not None and not _begins_later(control, one)]
    if not pairs:
        return Verdict(trial, "inconclusive", why="no unchanged replay from where it starts was run to compare with")
    verdicts = [
        _noted(_judge_one(_Pair(trial, case, controls, control, one, rate_only, own_scale)), one)
        for one, control in pairs
    ]
    effects = {verdict.effect for verdict in verdicts}
    if len(effects) == 1:
        return verdicts[0]
    said = ", ".join(sorted(effects))
    return Verdict(trial, "inconclusive", verdicts[0].numbers, f"its {len(verdicts)} runs differ: {said}")


def unchanged(controls: Sequence[Outcome], begin: int | None = None) -> Outcome | None:
    """The unchanged replay among the controls, that from the snapshot ``begin`` if several ran; None if none did."""
    ran = [one for one in controls if one.ran and one.spec.trial == UNCHANGED]
    return next((one for one in ran if one.spec.begin == begin), ran[0] if ran else None)


def _begins_later(control: Outcome, one: Outcome) -> bool:
    """Whether the control starts from a later state, which may hold the damage already."""
    return control.spec.begin is not None and one.spec.begin is not None and control.spec.begin > one.spec.begin


def not_run(trial: str, outcomes: Sequence[Outcome], otherwise: str = "nothing was run") -> Verdict:
    """The verdict of a trial that did not run, with the reason from its first outcome that has one."""
    why = next((one.why_not for one in outcomes if one.why_not), otherwise)
    return Verdict(trial, "not-run", why=str(why))


def shows(case: Case, control: Outcome, controls: Sequence[Outcome]) -> tuple[bool, str]:
    """Whether the unchanged replay shows the symptom, and a text that says what it shows."""
    if not control.ran:
        return False, str(control.why_not)
    if case.aim == "finite":
        bad = control.first_nonfinite is not None
        return bad, "a value is not finite" if bad else "every value is finite"
    if (rule := shows_rule(case, control)) is not None:
        return rule
    if case.aim == "progress":
        excess, fall = excess_in(case, control), fall_of(control)
        if excess is None and fall is not None:
            return True, f"the training loss ends at {fall.end:.3g}"
        return (
            excess is not None,
            "no probes" if excess is None else f"loss on fixed batches changes by {excess.final:+.3g}",
        )
    excess = excess_in(case, control)
    if excess is not None and excess.peak > noise_floor(case, excess, controls):
        return True, f"loss on fixed batches rises by {excess.peak:.3g}"
    quantity, growth = quantity_of(case), growth_of(case, control, control)
    if quantity is not None and growth > GROWTH_MIN:
        return True, f"the {QUANTITIES[quantity]} grows {math.exp(growth):.3g} times"
    high, by = highest_loss(case, control)
    if high:
        return True, f"the loss of a step is {by:.3g} above those before"
    return False, "nothing rises"


def measures(case: Case) -> bool:
    """Whether trials can measure the symptom. If not, a quiet trial proves nothing: losses do not show a non-finite
    moment, for example."""
    if case.symptom is None or case.aim != "excess" or not case.symptom.signals:
        return True
    # These signals belong to the core, not to plug-ins.
    return quantity_of(case) is not None or bool({"loss", "gradient_norm"} & set(case.symptom.signals))


def _noted(verdict: Verdict, outcome: Outcome) -> Verdict:
    """Add a note if a change had no effect at all."""
    if not outcome.exact or not outcome.spec.changes:
        return verdict
    return replace(verdict, why=f"{verdict.why}; with the change every number is bit-identical to the recording")


@dataclass(frozen=True)
class _Pair:
    """One run of a trial and the unchanged replay, with what is measured from both."""

    trial: str
    case: Case
    controls: Sequence[Outcome]
    control: Outcome
    outcome: Outcome
    rate_only: bool
    own_scale: bool

    @cached_property
    def numbers(self) -> dict[str, float]:
        return numbers_of(self.case, self.control, self.outcome)

    @cached_property
    def there(self) -> Excess | None:
        """The control's excess."""
        return excess_in(self.case, self.control)

    @cached_property
    def here(self) -> Excess | None:
        """The trial's excess."""
        return excess_in(self.case, self.outcome)

    @cached_property
    def grown(self) -> bool:
        """Whether what the symptom is about grew in the control, so that a rise at the edge of the noise is no better
        measure."""
        return quantity_of(self.case) is not None and growth_of(self.case, self.control, self.control) > GROWTH_MIN

    @cached_property
    def short(self) -> str | None:
        """Why a trial that ended before its control proves nothing, None if it did not.

        A script that guards itself leaves its loop at a batch that the trial refuses. If the other batches had finite
        losses just before, this is where the trial ends. If the loop was over in the control, too, it ended with it.
        """
        missing = len(self.control.steps) - len(self.outcome.steps)
        if self.outcome.ended is None or missing <= 0:
            return None
        of_loop = self.control.ended is not None and self.control.first_nonfinite is None
        if missing == _refused(self.outcome) and (of_loop or _last_probes_are_finite(self.outcome)):
            return None
        return f"it ended {missing} steps before the control: {self.outcome.ended}"

    def floor(self, excess: Excess) -> float:
        return noise_floor(self.case, excess, self.controls)

    def says(self, effect: Effect, why: str) -> Verdict:
        less = {WEAKENED: 1.0} if why.startswith(WEAKENED) else {}
        return Verdict(self.trial, effect, {**self.numbers, **less}, why)

    def less(self, why: str, ill: str) -> Verdict:
        """The verdict of a symptom that is smaller than in the control, while the run is still ``ill``: delayed if it
        fell ill later, else weakened."""
        here, there = first_ill_place(self.case, self.outcome), first_ill_place(self.case, self.control)
        later = here - there - _refused(self.outcome) if here is not None and there is not None else 0
        if later >= DELAYED_ENTRIES:
            return self.says("delayed", f"{why}; it comes {later} steps later")
        return self.weakened(f"{why}; {ill}")

    def weakened(self, why: str) -> Verdict:
        """The verdict of a symptom that is much smaller than in the control, and not gone."""
        return self.says("inconclusive", f"{WEAKENED}, not removed: {why}")


def _judge_one(pair: _Pair) -> Verdict:
    shown, what = shows(pair.case, pair.control, pair.controls)
    if not shown:
        why = f"the unchanged replay does not show the symptom: {what}"
        return _by_learning(pair) or pair.says("inconclusive", why)
    if pair.case.aim == "finite":
        return _by_first_nonfinite(pair)
    if pair.outcome.first_nonfinite is not None and pair.control.first_nonfinite is None:
        return pair.says("worse", "a value is not finite, which the control does not show")
    if verdict := judged_by_rule(pair.trial, pair.case, pair.control, pair.outcome):
        return verdict
    if pair.case.aim == "progress":
        return _by_progress(pair)
    if pair.control.first_nonfinite is not None:
        return _by_first_nonfinite_and_rise(pair)
    # Judge what the symptom is about before the step losses: a hard batch nearby is another story.
    return _by_rise(pair) or _by_growth(pair) or _by_highest_loss(pair)


def _refused(outcome: Outcome) -> int:
    return sum(entry.role == "refused" for entry in outcome.spec.schedule)


def _last_probes_are_finite(outcome: Outcome) -> bool:
    """Whether the probes after the last step that was trained on measured something, and only finite losses."""
    places = [place_of(outcome, seen.entry) for seen in outcome.probes]
    if not places or max(places) < len(outcome.steps):
        return False
    losses = [seen.loss for seen, place in zip(outcome.probes, places, strict=True) if place == max(places)]
    return all(loss is not None and math.isfinite(loss) for loss in losses)


def _by_first_nonfinite(pair: _Pair) -> Verdict:
    there, here = pair.control.first_nonfinite, pair.outcome.first_nonfinite
    assert there is not None
    if here is None:
        if pair.short is not None:
            return pair.says("inconclusive", pair.short)
        ill = ailment_at_end(pair.case, pair.outcome, _floor_of(pair), own_scale=pair.own_scale)
        if ill:
            return pair.less("every value is finite to the end", ill)
        return pair.says("removed", "every value is finite to the end")
    later = place_of(pair.outcome, here) - place_of(pair.control, there)
    if later >= DELAYED_ENTRIES + _refused(pair.outcome):
        return pair.says("delayed", f"not finite {later} steps later than in the control")
    if later < 0:
        return pair.says("worse", f"not finite {-later} steps before the control")
    return pair.says("persists", "not finite as in the control")


def _by_first_nonfinite_and_rise(pair: _Pair) -> Verdict:
    verdict = _by_first_nonfinite(pair)
    rose = pair.here is not None and pair.here.peak > pair.floor(pair.here)
    if verdict.effect == "removed" and rose:
        return pair.says("delayed", "finite to the end, where the control is not, but the loss rises")
    return verdict


def _by_progress(pair: _Pair) -> Verdict:
    there, here = pair.there, pair.here
    if there is None or here is None:
        return _by_training_loss(pair)
    floor = pair.floor(there)
    if (by_level := _by_level(pair)) is not None:
        return by_level
    still = min(floor, unsteadiness(there, pair.controls))
    fell, fell_there = -here.final, max(-there.final, 0.0)
    why = f"loss on fixed batches changes by {here.final:+.3g}, in the control by {there.final:+.3g}"
    if fell > PROGRESS_FACTOR * fell_there + still:
        return pair.says("removed", why)
    if here.final > there.final + max(floor, abs(there.final)):
        return pair.says("worse", why)
    if fell > PROGRESS_UNCLEAR_FACTOR * fell_there + still:
        return pair.says("inconclusive", why)
    if there.final > floor and here.final < PERSISTS_SHARE * there.final:
        return pair.weakened(f"{why}: most of the rise is gone, and it does not fall")
    return pair.says("persists", why)


def _by_learning(pair: _Pair) -> Verdict | None:
    """Judge a rise that no fixed batch shows, from a script's first steps on, by what the run learns; None if the
    control had learned something. That a run learns as little says nothing of a rise: then only a symptom that no loss
    shows persists."""
    begins = [one.spec.begin or 0 for one in (pair.control, pair.outcome)]
    if pair.case.aim != "excess" or max(begins) > EARLY_ONSET or pair.own_scale or pair.short is not None:
        return None
    means = probe_means(pair.control), probe_means(pair.outcome)
    if why := learns_more(*means, PROGRESS_FACTOR):
        return pair.says("removed", why)
    why = learns_as_little(*means, PROGRESS_UNCLEAR_FACTOR) if not measures(pair.case) else ""
    return pair.says("persists", why) if why else None


def _by_training_loss(pair: _Pair) -> Verdict:
    """Judge progress without probes: two re-runs from the start of the script draw the same batches."""
    there, here = fall_of(pair.control), fall_of(pair.outcome)
    if there is None or here is None:
        return pair.says("inconclusive", "no probes to judge progress by")
    if pair.own_scale or pair.short is not None:
        return pair.says("inconclusive", pair.short or "it changes what the loss measures")
    return pair.says(*compared(there, here, pair.controls))


def _by_level(pair: _Pair) -> Verdict | None:
    """Judge a loss that starts above the ``bound`` of its symptom by whether it gets below, where the control does
    not: it may fall far and still be above. None without a bound, or if the probes do not show the symptom."""
    bound = pair.case.symptom.numbers.get("bound") if pair.case.symptom is not None else None
    there, here = last_probe(pair.control), last_probe(pair.outcome)
    if bound is None or there is None or here is None or there <= bound:
        return None
    why = (
        f"the loss on fixed batches ends at {here:.3g}, in the control at {there:.3g}; far above a guess is {bound:.3g}"
    )
    if here <= bound:
        return pair.says("inconclusive", pair.short) if pair.short is not None else pair.says("removed", why)
    if here > WORSE_SHARE * there:
        return pair.says("worse", why)
    return pair.says("persists" if here >= PERSISTS_SHARE * there else "inconclusive", why)


def _by_rise(pair: _Pair) -> Verdict | None:
    """Judge by the rise of the probe loss, None if it does not rise in the control."""
    there, here = pair.there, pair.here
    if there is None or here is None:
        return None
    floor = pair.floor(there)
    if not there.peak > floor * (CLEAR_RISE if pair.grown else 1.0):
        return None
    effect = _by_share(here.peak, there.peak, floor)
    why = f"loss on fixed batches rises by {here.peak:.3g}, in the control by {there.peak:.3g}"
    if effect == "removed" and pair.short is not None:
        return pair.says("inconclusive", pair.short)
    return _if_healthy(pair, effect, why, floor)


def _if_healthy(pair: _Pair, effect: Effect, why: str, floor: float) -> Verdict:
    """``effect``, unless the symptom is smaller and the run is still ill."""
    if effect in ("removed", "inconclusive"):
        ill = ailment(pair.case, pair.outcome, floor, own_scale=pair.own_scale)
        if ill:
            return pair.less(why, ill)
    return pair.says(effect, why)


def _floor_of(pair: _Pair) -> float:
    return pair.floor(pair.here) if pair.here is not None else 0.0


def _by_growth(pair: _Pair) -> Verdict | None:
    """Judge by the growth of the gradient or the update, None if the symptom is about neither or it does not grow."""
    quantity = quantity_of(pair.case)
    grown, grows = (growth_of(pair.case, pair.control, one) for one in (pair.control, pair.outcome))
    if quantity is None or not grown > GROWTH_MIN:
        return None
    why = f"the {QUANTITIES[quantity]} grows {math.exp(grows):.3g} times, in the control {math.exp(grown):.3g}"
    effect = _by_share(grows, grown, 0.0)
    if effect == "removed" and pair.rate_only and pair.outcome.spec.changes and quantity == "update_ratio":
        return pair.says("inconclusive", f"{why}; a smaller rate alone makes smaller updates")
    usual = usual_growth(pair.case, pair.control) + GROWTH_MIN
    if effect == "removed" and grows > usual:
        return pair.less(why, f"before the onset it was at most {math.exp(usual):.3g} times its lower values")
    return pair.says(effect, why)


def _by_highest_loss(pair: _Pair) -> Verdict:
    there, here = (highest_loss(pair.case, one)[1] for one in (pair.control, pair.outcome))
    why = f"loss of a step {_beside(here)} those before, in the control {_beside(there)}; fixed batches show no damage"
    noise = pair.case.loss_noise()
    return _if_healthy(pair, _by_share(here, there, noise), why, max(noise, _floor_of(pair)))


def _beside(rise: float) -> str:
    return f"{-rise:.3g} below" if rise < 0 else f"{rise:.3g} above"


def _by_share(here: float, there: float, floor: float) -> Effect:
    if here <= max(REMOVED_SHARE * there, floor):
        return "removed"
    if here > WORSE_SHARE * there + floor:
        return "worse"
    return "persists" if here >= PERSISTS_SHARE * there else "inconclusive"
