"""Judging what a model's skill rests on: the same weights, with something taken away. Pure.

Some faults make the loss too good: a leak of the label, a look at what comes later. Taking the leak away cannot lower
the loss, so what is asked is another thing: how far the probes of the same weights, at the beginning of the trial, go
from the control's towards a guess.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from steadytrain.experiments.case import Case
from steadytrain.experiments.judging import not_run, unchanged
from steadytrain.experiments.outcome_measures import excess_of
from steadytrain.experiments.specs import Effect, Outcome, Verdict

RESTS_SHARE, STANDS_SHARE = 0.5, 0.1
"""Of the way from the control's loss to that of a guess: from the first on it rests on it, below the second not."""

LOWER_SHARE = 0.1
"""Of the control's probe loss at the end: a trial that ends so much lower does better."""

GOOD_SHARE = 0.8
"""Of the loss of a guess: a model that is no better has no skill that could rest on anything."""


def rests_on(trial: str, what: str, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
    """``removed`` where the skill is gone with ``what``; ``persists`` where the model does without."""
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
        why = f"the probe loss {there.first:.3g} is near that of a guess, {guess:.3g}: there is no skill to lose"
        return Verdict(trial, "inconclusive", numbers, why)
    share = (here.first - there.first) / (guess - there.first) if math.isfinite(here.first) else 1.0
    effect: Effect = "removed" if share >= RESTS_SHARE else "persists" if share < STANDS_SHARE else "inconclusive"
    said = f"without {what} the probe loss of the same weights is {here.first:.3g}, in the control {there.first:.3g}"
    return Verdict(trial, effect, {**numbers, "share": share}, f"{said}; a guess has {guess:.3g}")


def ends_lower(trial: str, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
    """``removed`` where the probes end well below the control's, for a change of the forward that helps at once."""
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
