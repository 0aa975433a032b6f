"""Trials with their own control: two runs that differ only by the change and measure the same. Pure.

The fault affects what the script's loss measures, so the unchanged replay cannot serve as control.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from steadytrain.experiments.case import Case
from steadytrain.experiments.judging import PERSISTS_SHARE, not_run
from steadytrain.experiments.outcome_measures import FLOOR_SHARE, REMOVED_SHARE, excess_of
from steadytrain.experiments.specs import Effect, NotApplicable, Outcome, Spec, Verdict

REACHED, REACHABLE = "loss_without_bound", "least_loss_within_bound"
"""The measures of a change that takes a bound of the predictions away."""

REACHED_SHARE = 0.9
"""Below this share of it a loss counts as out of the bound's reach."""

COLLAPSED = 2.5
"""A favourite expert must get this many times its fair share to count as a collapse (the cause's own bound)."""


def both(plans: Sequence[tuple[Spec, ...] | NotApplicable]) -> tuple[Spec, ...] | NotApplicable:
    """The trial's own control first, then the change, as repeats of the same trial."""
    specs: list[Spec] = []
    for number, plan in enumerate(plans):
        if isinstance(plan, NotApplicable):
            return plan
        specs += [replace(spec, repeat=number) for spec in plan]
    return tuple(specs)


def learns_it(trial: str, what: str, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
    """``removed`` if the loss of ``what`` ends lower than in the trial's own control."""
    pair = _pair(trial, outcomes)
    if isinstance(pair, Verdict):
        return pair
    there, here = excess_of(pair[0]), excess_of(pair[1])
    if there is None or here is None or not (there.finite and here.finite):
        return Verdict(trial, "inconclusive", why="there are no probes to judge by, or they are not finite")
    numbers = {"final_excess": here.final, "control_final_excess": there.final, "first_loss": here.first}
    floor = FLOOR_SHARE * abs(here.first)
    lower = there.final - here.final
    effect: Effect = "removed" if lower > floor and here.final < -floor else "persists"
    why = f"the loss of {what} changes by {here.final:+.3g}, trained as the script does by {there.final:+.3g}"
    return Verdict(trial, effect, numbers, f"{why} (from {here.first:.3g})")


def reaches_further(verdict: Verdict, outcomes: Sequence[Outcome]) -> Verdict:
    """``verdict`` on a run without a bound of its predictions: ``removed`` if its newest losses are below the least
    that predictions within the bound can come to on the same targets. No training with the bound gets there."""
    run = next((one for one in outcomes if one.ran), None)
    reached, least = (run.measured.get(name) if run is not None else None for name in (REACHED, REACHABLE))
    if reached is None or least is None or not reached < REACHED_SHARE * least:
        return verdict
    why = f"the loss of its last steps is {reached:.3g}, and the activation allows no less than {least:.3g} there"
    return replace(verdict, effect="removed", why=why, numbers={**verdict.numbers, REACHED: reached, REACHABLE: least})


def evens_out(trial: str, outcomes: Sequence[Outcome]) -> Verdict:
    """``removed`` if the favourite's load comes near its fair share. The loss is only reported: experts without tokens
    are untrained, so it proves little so early."""
    pair = _pair(trial, outcomes)
    if isinstance(pair, Verdict):
        return pair
    there, here = (one.measured.get("load") for one in pair)
    if there is None or here is None:
        return Verdict(trial, "inconclusive", why="the load of the experts was not measured")
    ends = [found.first + found.final for one in pair if (found := excess_of(one)) is not None and found.finite]
    numbers = {"load": here, "control_load": there}
    why = f"the favourite expert gets {here:.3g} times its share of the tokens, without the bias {there:.3g}"
    if len(ends) == len(pair):
        numbers |= {"control_final_loss": ends[0], "final_loss": ends[1]}
        why += f"; the probes end at {ends[1]:.3g} and {ends[0]:.3g}"
    if there < COLLAPSED:
        return Verdict(trial, "inconclusive", numbers, f"{why}: there is no collapse to remove")
    share = (here - 1) / (there - 1)
    effect: Effect = "removed" if share <= REMOVED_SHARE else "persists" if share >= PERSISTS_SHARE else "inconclusive"
    return Verdict(trial, effect, numbers, why)


def _pair(trial: str, outcomes: Sequence[Outcome]) -> tuple[Outcome, Outcome] | Verdict:
    """The trial's own control and the change, or the verdict if one is missing."""
    runs = {one.spec.repeat: one for one in outcomes if one.ran}
    if 0 in runs and 1 in runs:
        return runs[0], runs[1]
    return not_run(trial, outcomes, "it did not run to its end")
