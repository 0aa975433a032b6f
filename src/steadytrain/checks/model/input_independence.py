"""Does the model use its inputs, and does it get the labels without them?"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from steadytrain.checks.subject.inputs import changed_inputs, rows_or_refuse
from steadytrain.checks.subject.model_check import CannotError, Check, Cost, Outcome, Subject, failed, not_run, passed
from steadytrain.checks.subject.scores import Scores, entropy, scores_of, whole_step
from steadytrain.checks.subject.short_training import few_rows, fit, without_dropout
from steadytrain.core.plugins import threshold

STEPS_MIN = 12


@final
@dataclass(frozen=True)
class InputIndependence(Check):
    """The model learns from its inputs, and cannot learn the labels without them.

    Means:
        The check trains the model on a few rows twice: as they are, and with the first row's inputs for all. With equal
        inputs it cannot distinguish the rows, so the loss must not fall below the entropy of the labels at each
        position. If it does as well as with the real inputs, these do not reach the loss. If it does better than that
        entropy, the labels reach the model another way.

    Causes:
        - the model is called with the wrong variable, or its inputs are all zero, clipped or saturated
        - the labels are among the features, or forward gets and uses them
        - rows whose labels are all the same

    Next:
        1. Print two rows as the model gets them: do they differ?
        2. If the labels leak, remove arguments of forward one by one.
    """

    cost: ClassVar[Cost] = "minutes"
    quick: ClassVar[bool] = True
    source: ClassVar[str] = "Karpathy, A Recipe for Training Neural Networks (2019): input-independent baseline"

    rows_max: int = threshold(8, "rows of the training")
    steps_max: int = threshold(60, "steps of each of the two trainings")
    same_share: float = threshold(0.97, "with inputs the loss must fall below this share of that without")
    leak_share: float = threshold(0.8, "a loss without inputs below this share of the labels' entropy fails")

    def inspect(self, subject: Subject) -> Outcome:
        without_dropout(subject.model)
        batch = few_rows(subject.batches[0], self.rows_max)
        rows = rows_or_refuse(batch, 2)
        look = subject.look(batch)
        scores = scores_of(look, batch.rows)
        floor = _entropy_by_position(scores) if scores is not None and len(scores.logits) == rows else None
        if floor is not None and floor < 0.05:
            return not_run(f"the labels of {rows} rows are all the same: nothing can be told")
        if not look.loss_calls:
            return not_run("no call of a known loss function was seen: how low the loss may go is not known")
        scale = whole_step(batch, look)
        del look
        touched: list[bool] = []

        def of_first(tensor: Tensor) -> Tensor:
            touched.append(True)
            return tensor[:1].expand_as(tensor)

        def blind() -> contextlib.AbstractContextManager[None]:
            return changed_inputs(subject, batch, of_first)

        with blind(), torch.no_grad():
            subject.look(batch)
        if not touched:
            raise CannotError("the inputs cannot be exchanged: neither embedded tokens nor numbers by rows")
        start = [parameter.detach().clone() for parameter in subject.model.parameters()]
        half = subject.time_left() / 2
        with_inputs = fit(subject, [batch], steps=self.steps_max, seconds=half)
        with torch.no_grad():
            for parameter, values in zip(subject.model.parameters(), start, strict=True):
                parameter.copy_(values)
        rate = (with_inputs.rate,)
        steps = len(with_inputs.losses)
        without = fit(subject, [batch], steps=steps, seconds=max(half, subject.time_left()), rates=rate, around=blind)
        numbers: dict[str, Any] = {
            "rows": rows,
            "with_inputs": with_inputs.last * scale,
            "without_inputs": without.last * scale,
            "labels_entropy": floor,
            "steps": steps,
        }
        if min(steps, len(without.losses)) < STEPS_MIN:
            return not_run(f"only {steps} steps fitted into the time; --full gives more", **numbers)
        if floor is not None and without.last * scale < self.leak_share * floor:
            return failed(
                f"without inputs that differ the loss comes to {without.last * scale:.3g}; the labels' entropy is "
                f"{floor:.3g}: the labels are seen",
                **numbers,
            )
        text = f"after {steps} steps the loss is {with_inputs.last:.3g} with the inputs, {without.last:.3g} without"
        if with_inputs.last >= self.same_share * without.last:
            if with_inputs.cut_off or with_inputs.last > 0.9 * with_inputs.first:
                return not_run(f"{text}: too few steps to tell; --full gives more", **numbers)
            return failed(f"{text}: they make no difference", **numbers)
        return passed(text, **numbers)


def _entropy_by_position(scores: Scores) -> float:
    """The entropy of the targets at each position across rows, averaged over the counted positions."""
    total, count = 0.0, 0
    for at in range(scores.positions):
        kept = scores.targets[:, at][scores.counted[:, at]]
        total += entropy(kept) * len(kept) if len(kept) else 0.0
        count += len(kept)
    return total / count if count else 0.0
