"""Trials that bring a control of their own: two runs that differ by the change alone, measured the same way. Pure.

What the script's own loss measures is part of the fault, so the unchanged replay cannot be what they are compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from steadytrain.experiments.case import Case
from steadytrain.experiments.judging import PERSISTS_SHARE, not_run
from steadytrain.experiments.outcome_measures import FLOOR_SHARE, REMOVED_SHARE, excess_of
from steadytrain.experiments.specs import Effect, NotApplicable, Outcome, Spec, Verdict

COLLAPSED = 2.5
"""Times its fair share that a favourite expert has to get for a collapse to be there at all (the cause's own bound)."""


def both(plans: Sequence[tuple[Spec, ...] | NotApplicable]) -> tuple[Spec, ...] | NotApplicable:
    """The control of its own first, then the change; each a repeat of the same trial."""
    specs: list[Spec] = []
    for number, plan in enumerate(plans):
        if isinstance(plan, NotApplicable):
            return plan
        specs += [replace(spec, repeat=number) for spec in plan]
    return tuple(specs)


def learns_it(trial: str, what: str, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
    """``removed`` where the loss of ``what`` ends lower than in the control of its own."""
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


def evens_out(trial: str, outcomes: Sequence[Outcome]) -> Verdict:
    """``removed`` where the favourite's load comes near its fair share. The loss is told beside it: experts that had no
    tokens know nothing yet, so it says little so soon."""
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
    """The control of its own and the change, or why there are not both."""
    runs = {one.spec.repeat: one for one in outcomes if one.ran}
    if 0 in runs and 1 in runs:
        return runs[0], runs[1]
    return not_run(trial, outcomes, "it was not run to its end")
