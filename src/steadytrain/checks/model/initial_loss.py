"""Compare the first loss with that of a guess."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

from steadytrain.checks.subject.model_check import (
    CannotError,
    Check,
    Cost,
    Outcome,
    Subject,
    failed,
    not_run,
    passed,
    warned,
)
from steadytrain.checks.subject.scores import best_constant_loss, guess_loss, loss_of_a_target, whole_step
from steadytrain.core.plugins import threshold

BATCHES_MAX = 2


@final
@dataclass(frozen=True)
class InitialLoss(Check):
    """The first loss is that of a model that knows nothing.

    Means:
        An untrained model gives each class about the same score, so its cross-entropy is close to ln C, the logarithm
        of the number of classes (ln 2 for one logit), and its squared error close to that of a constant. A loss far
        above it means that the first steps only undo the initialisation. A loss far below it means that the model can
        see the answer, that the loss is divided by too much, or that the model is already trained.

    Causes:
        - too large initial values in the last layer or the embedding
        - the labels are among the inputs: a missing causal mask, a shift of labels that was forgotten or done twice
        - a sum in place of a mean, or a loss divided twice (accumulation, padding counted as targets)
        - inputs or regression targets that are not normalised
        - a tokenizer, or weights, that belong to another model

    Next:
        1. Print the logits of the first batch: their spread should be well below 1 at the beginning.
        2. If the loss is too high, scale the last layer down (a standard deviation of 0.02, or zero).
        3. If it is too low, run the checks causality and label-alignment.
    """

    cost: ClassVar[Cost] = "free"
    first: ClassVar[bool] = True
    source: ClassVar[str] = "Karpathy, A Recipe for Training Neural Networks (2019): verify loss at init"

    high_nats: float = threshold(0.5, "this far above ln C warns; plain GPTs measured 0.05 to 0.1 above it")
    far_nats: float = threshold(3.0, "this far above ln C fails: logits with a standard deviation above 2")
    low_nats: float = threshold(0.2, "this far below the best guess that ignores the inputs warns")
    low_share: float = threshold(0.5, "a loss below this share of the best such guess fails for an untrained model")
    regression_ratio: float = threshold(10.0, "a squared error this many times that of a constant warns")

    def inspect(self, subject: Subject) -> Outcome:
        losses = []
        for batch in subject.batches[:BATCHES_MAX]:
            look = subject.look(batch)
            summed = loss_of_a_target(look)
            losses.append(float(look.loss.detach()) * whole_step(batch, look) if summed is None else summed)
        if not all(math.isfinite(loss) for loss in losses):
            return failed(
                f"the first loss is {losses[0]:g}", meaning="It is not finite before any update.", losses=losses
            )
        guess = guess_loss(look)
        if guess is None or not look.loss_calls:
            return not_run("no call of a known loss function was seen: what a guess costs is not known", losses=losses)
        loss, (expected, how) = sum(losses) / len(losses), guess
        constant = best_constant_loss(look.loss_calls[-1])
        numbers: dict[str, Any] = {
            "loss": loss,
            "expected": expected,
            "how": how,
            "losses": losses,
            "best_constant": constant,
        }
        if subject.task == "regression" or look.loss_calls[-1].function in ("mse_loss", "l1_loss"):
            return self._regression(loss, expected, constant, numbers)
        return self._classes(loss, expected, constant, numbers)

    def _classes(self, loss: float, expected: float, constant: float | None, numbers: dict[str, Any]) -> Outcome:
        floor = min(expected, constant) if constant else expected
        text = f"the first loss is {loss:.3f}; {expected:.3f} ({numbers['how']}) is what a guess costs"
        if loss > expected + self.far_nats:
            return failed(f"{text}: far too high", **numbers)
        if loss > expected + self.high_nats:
            return warned(f"{text}: too high", **numbers)
        if loss < floor - self.low_nats and loss < self.low_share * floor:
            return warned(
                f"{text}: far too low for a model that knows nothing",
                meaning="The weights are trained already, or the model sees the answer, or the loss is divided by too "
                "much. The checks causality, label-alignment and input-independence tell them apart.",
                **numbers,
            )
        if loss < floor - self.low_nats:
            return passed(f"{text}: a model that was trained before", **numbers)
        return passed(text, **numbers)

    def _regression(self, loss: float, expected: float, constant: float | None, numbers: dict[str, Any]) -> Outcome:
        if constant is None:
            raise CannotError("the targets of the regression were not seen")
        reference = max(constant, 1e-12)
        text = f"the first loss is {loss:.4g}; the best constant prediction costs {constant:.4g} on this batch"
        if expected > self.regression_ratio * reference and loss > self.regression_ratio * reference:
            return warned(
                f"{text}: the targets lie far from 0",
                meaning="The first steps only move the last bias to where the targets are. It is healthy, and slow.",
                next="Subtract the mean of the targets and divide them by their standard deviation.",
                **numbers,
            )
        if loss > self.regression_ratio * max(reference, expected):
            return warned(f"{text}: too high", **numbers)
        return passed(text, **numbers)
