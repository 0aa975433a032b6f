"""Can the model memorize a few rows?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

from steadytrain.checks.subject.model_check import Check, Cost, Outcome, Subject, failed, not_run, passed, warned
from steadytrain.checks.subject.scores import lowest_loss
from steadytrain.checks.subject.short_training import few_rows, fit, trained_parameters, without_dropout
from steadytrain.core.plugins import threshold

STEPS_MIN = 40


@final
@dataclass(frozen=True)
class OverfitOneBatch(Check):
    """The model can memorize a few rows with the script's own loss.

    Means:
        The check trains repeatedly on a few rows of the first batch, without dropout and weight decay, with Adam at the
        best of three rates. Any correct model brings their loss close to 0. One that does not cannot learn from more
        data either: the fault is in the model, the loss or the labels, not in the schedule.

    Causes:
        - parameters that are frozen, detached, or not in the optimizer
        - labels that do not belong to the inputs, or the same input with different labels
        - a loss over the wrong axis, on probabilities in place of logits, or with everything masked
        - activations that are dead or saturated from the start

    Next:
        1. Run gradient-coverage and loss-misuse: they name most causes.
        2. Print one row of inputs and labels in readable form, as the model gets them.
        3. Remove modules from the model until the rest overfits.
    """

    cost: ClassVar[Cost] = "minutes"
    quick: ClassVar[bool] = True
    first: ClassVar[bool] = True
    source: ClassVar[str] = "Karpathy, A Recipe for Training Neural Networks (2019): overfit one batch"

    rows_max: int = threshold(4, "rows of the training; more take longer and show no more")
    steps_max: int = threshold(300, "steps at most; plain models need 30 to 150")
    pass_share: float = threshold(
        0.1, "of the first loss (above the minimum for smoothed labels): below it the rows are learned"
    )
    fail_share: float = threshold(0.7, "of the first loss: above it the model learned little")
    frozen_share: float = threshold(0.95, "of the first loss, where most parameters are frozen (adapters)")
    low_nats: float = threshold(0.1, "at this loss the rows are learned, however low it began")

    def inspect(self, subject: Subject) -> Outcome:
        without_dropout(subject.model)
        batch = few_rows(subject.batches[0], self.rows_max)
        look = subject.look(batch)
        if not look.loss.requires_grad:
            return failed("the loss does not depend on any parameter: nothing can be learned")
        known = bool(look.loss_calls)
        floor = lowest_loss(look.loss_calls[-1]) if known else 0.0
        first = float(look.loss.detach())
        del look
        if not math.isfinite(first):
            return not_run(f"the first loss is {first:g}: see initial-loss")
        target = floor + max(0.5 * self.pass_share * (first - floor), 0.0)
        found = fit(subject, [batch], steps=self.steps_max, seconds=subject.time_left(), stop_below=target)
        mostly_frozen = _trained_share(subject) < 0.5
        share = (found.last - floor) / (first - floor) if first > floor else 1.0
        numbers: dict[str, Any] = {
            "rows": batch.rows,
            "first": first,
            "last": found.last,
            "lowest_possible": floor,
            "share_left": share,
            "steps": len(found.losses),
            "learning_rate": found.rate,
        }
        rows, steps = batch.rows or "some", len(found.losses)
        text = f"the loss of {rows} rows went from {first:.3g} to {found.last:.3g} in {steps} steps"
        if not known and found.last < (1.0 - self.pass_share) * abs(first):
            return passed(f"{text} (how low it can go is not known)", **numbers)
        if share <= self.pass_share or (found.last - floor < self.low_nats and share < self.fail_share):
            return passed(text, **numbers)
        if mostly_frozen and share < self.frozen_share:
            return passed(f"{text} (most of the model is frozen: how low it can go is not known)", **numbers)
        if found.cut_off and (len(found.losses) < STEPS_MIN or found.still_falling):
            if share < 0.5:
                return passed(f"{text}, when the time was over, and was falling", **numbers)
            return not_run(f"{text}, when the time was over, and was falling; --full takes longer", **numbers)
        if share > self.fail_share:
            return failed(text, **numbers)
        return warned(f"{text}: it is not learned by heart", **numbers)


def _trained_share(subject: Subject) -> float:
    """The share of the model's values that the script trains."""
    everything = sum(parameter.numel() for parameter in subject.model.parameters())
    return sum(parameter.numel() for parameter in trained_parameters(subject)) / max(everything, 1)
