"""How far the training loss of a re-run from the start of the script falls. Pure.

For runs of which no recorded batch can be a probe. The control and the trial begin with the same weights and draw the
same batches, so the losses of their last steps compare batch by batch. A trial whose very first loss differs has other
data, another loss or other initial weights: it is not compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from steadytrain.experiments.outcome_measures import FLOOR_SHARE
from steadytrain.experiments.specs import WEAKENED, Effect, Outcome

END_SHARE = 4
"""The end is the last quarter of the steps."""

STEPS_MIN = 8

NOISES = 3.0
"""A difference below this many standard errors of its mean is noise."""

MUCH, SOME = 3.0, 1.5
"""A run that did not learn is cured if its loss falls so many times as far as the control's; between the two it is
unclear."""

UNLEARNED_SHARE = 0.3
"""Share of the first loss: a run whose loss falls by less stands near its guess."""

HALF = 0.5
"""A loss that ends at this share of the control's is cured too: a run that learns half of its task falls far."""


@dataclass(frozen=True)
class Fall:
    """The first loss, and those of the last quarter of the steps."""

    first: float
    last: tuple[float, ...]

    @property
    def end(self) -> float:
        return float(np.median(self.last))


def fall_of(outcome: Outcome) -> Fall | None:
    """The fall of an outcome from the script's own start; None if it is too short or a loss is not known."""
    losses = [one.loss for one in outcome.steps]
    known = [loss for loss in losses if loss is not None and math.isfinite(loss)]
    if outcome.spec.begin or len(known) < STEPS_MIN or len(known) < len(losses):
        return None
    return Fall(known[0], tuple(known[-(len(known) // END_SHARE) :]))


def begun_alike(outcome: Outcome, controls: Sequence[Outcome]) -> Outcome:
    """``outcome`` with the first loss of the control, for a change of the inputs: its first outputs are others, and the
    targets that its losses measure are the same."""
    first = next((one.steps[0].loss for one in controls if one.ran and one.steps and not one.spec.begin), None)
    if first is None or outcome.spec.begin or not outcome.steps:
        return outcome
    return replace(outcome, steps=(replace(outcome.steps[0], loss=first), *outcome.steps[1:]))


def end_of(outcome: Outcome) -> float | None:
    """The middle loss of the last quarter of the steps; None if one of them is not known or not finite."""
    losses = [one.loss for one in outcome.steps[-max(1, len(outcome.steps) // END_SHARE) :]]
    known = [loss for loss in losses if loss is not None and math.isfinite(loss)]
    return float(np.median(known)) if known and len(known) == len(losses) else None


def compared(there: Fall, here: Fall, controls: Sequence[Outcome]) -> tuple[Effect, str]:
    """The effect of a trial that falls as ``here`` against the unchanged re-run ``there``, and why.

    Args:
        controls: all controls; what they differ by at the end is noise.
    """
    if here.first != there.first:
        return "inconclusive", "it begins with another loss, so the losses do not compare"
    if len(here.last) != len(there.last):
        return "inconclusive", "it has not as many steps as the control"
    ends = [fall.end for one in controls if one.ran and (fall := fall_of(one)) is not None]
    noise = max(NOISES * _error(there, here), max(ends, default=0.0) - min(ends, default=0.0))
    fell, fell_there = here.first - here.end, max(there.first - there.end, 0.0)
    why = f"the training loss ends at {here.end:.3g}, in the control at {there.end:.3g}"
    if here.end > there.end + max(noise, fell_there):
        return "worse", why
    if there.end - here.end <= noise:
        return "persists", why
    if fell > MUCH * fell_there or 0.0 <= here.end <= HALF * there.end:
        return "removed", why
    if fell > SOME * fell_there:
        return "inconclusive", why
    risen = there.end - there.first
    if risen > noise and here.end - here.first < HALF * risen:
        return "inconclusive", f"{WEAKENED}, not removed: {why}: most of the rise is gone, and it does not fall"
    return "persists", why


def _error(there: Fall, here: Fall) -> float:
    """Standard error of the mean difference of the last steps, batch by batch."""
    apart = np.subtract(there.last, here.last)
    return float(apart.std()) / math.sqrt(len(apart))


def learns_more(there: Sequence[float], here: Sequence[float], factor: float) -> str:
    """That the mean losses ``here`` of fixed batches fall by more than ``factor`` times those of the control, in words,
    where the control stays near its guess: it has little to lose, and a run that learns does not fall ill as it did. ""
    otherwise."""
    falls = _falls_of_unlearned(there, here)
    if falls is None or not falls[1] > factor * falls[0] + FLOOR_SHARE * abs(there[0]):
        return ""
    return "" if max(here) > here[0] + falls[1] else _falls_beside(*falls)


def learns_as_little(there: Sequence[float], here: Sequence[float], factor: float) -> str:
    """That they fall by at most ``factor`` times those of such a control, in words; "" otherwise."""
    falls = _falls_of_unlearned(there, here)
    as_little = falls is not None and falls[1] <= factor * falls[0] + FLOOR_SHARE * abs(there[0])
    return _falls_beside(*falls) if falls is not None and as_little else ""


def _falls_of_unlearned(there: Sequence[float], here: Sequence[float]) -> tuple[float, float] | None:
    """The falls of a control that stays near its guess and of a trial; None if it learns, or they cannot be compared.
    A trial that begins with a higher loss has learned nothing on the way back."""
    if min(len(there), len(here)) < 2 or not all(map(math.isfinite, (*there, *here))):
        return None
    fell_there = max(there[0] - there[-1], 0.0)
    return None if fell_there > UNLEARNED_SHARE * abs(there[0]) else (fell_there, min(here[0], there[0]) - here[-1])


def _falls_beside(there: float, here: float) -> str:
    return f"loss on fixed batches falls by {here:.3g}, in the control by {there:.3g}"
