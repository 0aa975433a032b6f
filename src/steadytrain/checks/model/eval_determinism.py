"""Does the model give the same output twice in evaluation mode?"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch

from steadytrain.checks.subject.model_calls import calls_of, difference, outputs_of
from steadytrain.checks.subject.model_check import Check, Cost, Outcome, Subject, failed, not_run, passed, warned
from steadytrain.checks.subject.random_draws import Draw, DrawWatch
from steadytrain.checks.subject.short_training import evaluating, few_rows
from steadytrain.core.plugins import threshold

ROWS_MAX = 8


@final
@dataclass(frozen=True)
class EvalDeterminism(Check):
    """In evaluation mode the model's output does not depend on random numbers.

    Means:
        The check calls the model twice in evaluation mode with the same inputs and different random states. Different
        outputs mean that something random is still active: evaluation scores are then noisy and too low.

    Causes:
        - `F.dropout(x, p)` without `training=self.training`: its default is True
        - noise, sampling or random cropping inside forward that ignores the mode
        - batch statistics that are updated in evaluation mode
        - kernels that sum in a different order each time (small differences, on a GPU)

    Next:
        1. Pass `training=self.training` to every functional dropout, or use `nn.Dropout`.
        2. Compare the modules' outputs of both calls: the first that differs holds the randomness.
    """

    cost: ClassVar[Cost] = "free"
    source: ClassVar[str] = "PyTorch documentation of torch.nn.functional.dropout: training defaults to True"

    rounding_share: float = threshold(1e-5, "of the largest output: rounding of sums in another order")

    def inspect(self, subject: Subject) -> Outcome:
        calls = calls_of(subject, few_rows(subject.batches[0], ROWS_MAX))
        watch = DrawWatch()
        with contextlib.ExitStack() as modes:
            for module in (subject.model, *(call[0] for call in calls)):
                modes.enter_context(evaluating(module))
            modes.enter_context(watch)
            torch.manual_seed(1)
            one = [tensor for call in calls for tensor in outputs_of(call)]
            torch.manual_seed(2)
            two = [tensor for call in calls for tensor in outputs_of(call)]
        if not one:
            return not_run("the model returns no floating-point tensor")
        worst, largest = difference(one, two)
        numbers: dict[str, Any] = {"difference": worst, "largest": largest}
        if worst > self.rounding_share * max(largest, 1e-12):
            return _drawn(f"two calls in evaluation mode differ by {worst:.2g}", largest, watch.draw, numbers)
        if worst > 0.0:
            return warned(
                f"two calls in evaluation mode differ by rounding ({worst:.2g})",
                meaning="A kernel adds in a different order each time. It is no fault; exact replays are not possible.",
                next="torch.use_deterministic_algorithms(True) names the operation.",
                **numbers,
            )
        return passed("two calls in evaluation mode are the same to the last bit", **numbers)


def _drawn(found: str, largest: float, draw: Draw | None, numbers: dict[str, Any]) -> Outcome:
    """A fault, unless the model samples: a variational autoencoder does so on purpose."""
    if draw is None:
        return failed(f"{found} (largest value {largest:.2g})", **numbers)
    numbers |= {"function": draw.function, "place": draw.place}
    if draw.is_dropout:
        return failed(f"{found}: {draw.function} is on at {draw.place}", **numbers)
    return warned(
        f"{found}: the model draws random numbers ({draw})",
        meaning="The model samples in evaluation, too. A variational autoencoder or a policy does so on purpose; its "
        "scores then vary from one evaluation to the next.",
        next=f"If the scores must not vary, return the mean at {draw.place} when self.training is False.",
        **numbers,
    )
