"""Judge what a model's skill depends on: the same weights, with something removed. Pure.

Some faults make the loss too good: a label leak, or access to later tokens. Removing the leak cannot lower the loss. So
the test measures, with the same weights at the start of the trial, how far the probe loss moves from the control's
towards that of a guess.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from steadytrain.experiments.case import Case
from steadytrain.experiments.judging import not_run, unchanged
from steadytrain.experiments.outcome_measures import excess_of
from steadytrain.experiments.specs import Effect, Outcome, Verdict

RESTS_SHARE, STANDS_SHARE = 0.5, 0.1
"""Shares of the way from the control's loss to a guess. At or above the first, the skill depends on it; below the
second, it does not.
"""

LOWER_SHARE = 0.1
"""A trial does better if it ends lower by this share of the control's final probe loss."""

GOOD_SHARE = 0.8
"""A model has skill only if its loss is below this share of a guess's loss."""


def rests_on(trial: str, what: str, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
    """``removed`` if the skill vanishes without ``what``; ``persists`` if the model does not need it."""
    ran = [one for one in outcomes if one.ran]
    if not ran:
        return not_run(trial, outcomes)
    control = unchanged(controls)
    there, here = (excess_of(control) if control is not None else None), excess_of(ran[0])
    guess = case.facts.get("uniform_loss")
    if there is None or here is None or not isinstance(guess, (int, float)):
        return Verdict(trial, "inconclusive", why="there are no probes, or the loss of a guess is not known")
    numbers = {"first_loss": here.first, "control_first_loss": there.first, "guess": float(guess)}
    if not there.first < GOOD_SHARE * guess:
        near = f"is near that of a guess, {guess:.3g}: there is no skill to lose"
        why = f"the loss on fixed batches, {there.first:.3g}, {near}"
        return Verdict(trial, "inconclusive", numbers, why)
    share = (here.first - there.first) / (guess - there.first) if math.isfinite(here.first) else 1.0
    effect: Effect = "removed" if share >= RESTS_SHARE else "persists" if share < STANDS_SHARE else "inconclusive"
    beside = f"{here.first:.3g}, in the control {there.first:.3g}"
    said = f"without {what} the loss on fixed batches of the same weights is {beside}"
    return Verdict(trial, effect, {**numbers, "share": share}, f"{said}; a guess has {guess:.3g}")


def ends_lower(trial: str, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
    """``removed`` if the probes end well below the control's, for a change of the forward that helps at once."""
    ran = [one for one in outcomes if one.ran]
    if not ran:
        return not_run(trial, outcomes)
    control = unchanged(controls)
    there, here = (excess_of(control) if control is not None else None), excess_of(ran[0])
    if there is None or here is None or not (there.finite and here.finite):
        return Verdict(trial, "inconclusive", why="there are no probes to judge by, or they are not finite")
    last, last_there = here.first + here.final, there.first + there.final
    numbers = {"final_loss": last, "control_final_loss": last_there}
    lower = last_there - last
    effect: Effect = (
        "removed"
        if lower > LOWER_SHARE * abs(last_there)
        else "worse"
        if lower < -LOWER_SHARE * abs(last_there)
        else "persists"
    )
    return Verdict(trial, effect, numbers, f"the probes end at {last:.3g}, in the control at {last_there:.3g}")
