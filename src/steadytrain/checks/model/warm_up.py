"""The effect of the first steps at their scheduled learning rates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch

from steadytrain.checks.subject.model_check import Check, Cost, Outcome, Subject, failed, passed, warned
from steadytrain.checks.subject.own_steps import at_peak, few_rows, in_turn, peak_rate, train
from steadytrain.core.plugins import threshold

STEPS = 10


@final
@dataclass(frozen=True)
class WarmUp(Check):
    """The first steps do not destroy the model.

    Means:
        The check takes ten steps on the first batches, at the learning rates of the script's schedule. If the loss ends
        far above its start, the updates are too large. Adam's first updates have the size of the learning rate whatever
        the gradient, so without a warm-up they are the largest of all.

    Causes:
        - a peak learning rate from the first step on, without warm-up
        - a learning rate that is generally too high for this model
        - no gradient clipping, with a first gradient that is far larger than later ones

    Next:
        1. Warm up linearly over at least 100 steps, or some percent of training.
        2. Take a tenth of the peak rate and run the check again.
    """

    cost: ClassVar[Cost] = "minutes"
    quick: ClassVar[bool] = True
    source: ClassVar[str] = "Gotmare et al. 2018 (1810.13243); Liu et al. 2019 (1908.03265)"

    rise: float = threshold(1.5, "a loss this many times the first warns")
    far: float = threshold(4.0, "a loss this many times the first fails")

    def inspect(self, subject: Subject) -> Outcome:
        peak_rate(subject)
        optimizer = at_peak(subject)
        rates, batches = _rates(subject), few_rows(subject)
        before = _norm(optimizer)
        losses = train(subject, optimizer, in_turn(batches, STEPS), rates=rates, all_or_none=True)
        with torch.no_grad():
            after = [float(subject.loss(batch).detach()) for batch in batches[:2]]
        first = sum(losses[: len(after)]) / max(len(losses[: len(after)]), 1)
        last = sum(after) / len(after)
        numbers: dict[str, Any] = {
            "losses": losses,
            "learning_rates": rates,
            "loss_first": first,
            "loss_after": last,
            "weights_norm": [before, _norm(optimizer)],
        }
        highest = max(losses)
        if not all(map(math.isfinite, [*losses, last])):
            return failed(f"the loss is not finite after {len(losses)} steps at a rate of {rates[0]:.2g}", **numbers)
        base = max(abs(first), 1e-6)
        told = f"the loss goes from {first:.3g} to {last:.3g} in {STEPS} steps"
        if last > first and last > self.far * base:
            return failed(told, **numbers)
        if highest > self.rise * base and last > self.rise * base:
            return warned(told, **numbers)
        return passed(told, **numbers)


def _rates(subject: Subject) -> list[float]:
    """The learning rates of the script's first steps; the last one repeats after them."""
    steps: Sequence[Mapping[str, Any]] = subject.observed.get("steps", ())
    seen = [float(step["learning_rate"]) for step in steps if step["learning_rate"] is not None]
    if not seen:
        seen = [max(float(group["lr"]) for group in subject.optimizers[0].param_groups)]
    return [*seen, *[seen[-1]] * STEPS][:STEPS]


def _norm(optimizer: torch.optim.Optimizer) -> float:
    parameters = [p.detach().double() for group in optimizer.param_groups for p in group["params"]]
    return math.sqrt(sum(float(p.square().sum()) for p in parameters))
