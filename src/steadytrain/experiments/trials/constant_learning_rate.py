"""The learning rate that stood before the onset."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial

SCHEDULES = ("mistimed-schedule", "spent-schedule")
FAR_BELOW, HARDLY = 0.5, 0.2


@final
class ConstantLearningRate(Trial):
    """The learning rate that stood before the onset.

    Changes:
        The rate is constant: its median over the recorded steps before the onset; or, where a schedule that is stepped
        in another unit keeps it far below, the one that the optimizer was made with.

    Tells:
        A schedule that changed the rate wrongly.

    Beware:
        No effect on a constant rate.
    """

    axis = "optimizer"
    removes = "transient"
    either = "rate"
    rate_only = True

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        rate = case.typical("learning_rate")
        if rate is None or rate <= 0:
            return NotApplicable("the learning rate before the onset is not known")
        if case.symptom is not None and case.symptom.name in SCHEDULES:
            base = _made_with(case)
            if base is not None and rate < base * FAR_BELOW:
                rate = base
            elif _stood(case):
                return NotApplicable("the rate hardly moved, so a constant one is nearly the same")
        return planned(self, case, Change("fixed-learning-rate", {"value": rate}))


def _stood(case: Case) -> bool:
    rates = case.window.series("learning_rate").values
    return len(rates) > 0 and float(rates.max()) <= (1.0 + HARDLY) * float(rates.min())


def _made_with(case: Case) -> float | None:
    """The rate that schedulers of torch write into the groups of their optimizer when they are made."""
    optimizers = case.environment.get("optimizer")
    try:
        rate = optimizers[0]["groups"][0]["initial_lr"]  # type: ignore[index]
    except (KeyError, IndexError, TypeError):
        return None
    return float(rate) if isinstance(rate, int | float) else None
