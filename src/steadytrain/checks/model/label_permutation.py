"""Does the model do well on meaningless labels?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from steadytrain.checks.subject.inputs import rows_or_refuse
from steadytrain.checks.subject.model_check import (
    Batch,
    CannotError,
    Check,
    Cost,
    Look,
    Outcome,
    Subject,
    failed,
    not_run,
    passed,
    tensors_of,
)
from steadytrain.checks.subject.scores import best_constant_loss, class_call, scores_of
from steadytrain.checks.subject.short_training import fit, without_dropout
from steadytrain.checks.subject.tokens import token_ids
from steadytrain.core.plugins import threshold

STEPS_MIN = 12
SHIFTS = (1, 5, 2, 7, 3, 6, 4)


@final
@dataclass(frozen=True)
class LabelPermutation(Check):
    """With labels of other rows, the model cannot predict unseen rows.

    Means:
        The check shifts the labels by some rows, a different number in each step, so that they are unrelated to the
        inputs. It trains the model on some batches and measures its loss on another, which cannot fall below that of
        the best guess. If it does, the labels reach the model another way.

    Causes:
        - features that hold the labels or something computed from them
        - forward uses the labels for more than the loss

    Next:
        1. Remove inputs one by one until the loss on fresh rows rises.
        2. Check how forward uses its labels before the loss.
    """

    cost: ClassVar[Cost] = "minutes"
    quick: ClassVar[bool] = True
    source: ClassVar[str] = "permutation test; Zhang et al., Understanding deep learning requires rethinking (2017)"

    steps_max: int = threshold(60, "steps of the training")
    leak_share: float = threshold(0.6, "a loss on fresh rows below this share of the best guess fails")

    chance_widths: float = threshold(
        4.0, "correct fresh rows above chance, in standard deviations, from which it fails"
    )
    margin_share: float = threshold(0.2, "and at least this share of the rows above chance")

    def inspect(self, subject: Subject) -> Outcome:
        if subject.task not in ("classification", "regression"):
            return not_run(f"the task is {subject.task}: its labels are its inputs, and cannot be moved between rows")
        without_dropout(subject.model)
        batches = list(subject.batches)
        if len(batches) < 2:
            rows = rows_or_refuse(batches[0], 8)
            batches = [batches[0].taken(range(rows // 2)), batches[0].taken(range(rows // 2, rows))]
        looks = [subject.look(batch) for batch in batches]
        # A different shift each time, so that memorized labels do not help in the next step.
        moved = [_moved(b, look, by) for by in SHIFTS for b, look in zip(batches[:-1], looks[:-1], strict=True)]
        moved.append(_moved(batches[-1], looks[-1], 1))
        found = fit(subject, moved[:-1], steps=self.steps_max, seconds=subject.time_left())
        with torch.no_grad():
            look = subject.look(moved[-1])
        loss, call = float(look.loss.detach()), look.loss_calls[-1]
        guess = best_constant_loss(call)
        steps = len(found.losses)
        numbers: dict[str, Any] = {"trained": found.last, "fresh": loss, "best_guess": guess, "steps": steps}
        if guess is None or guess < 1e-6:
            return not_run("what the best guess costs on the fresh labels cannot be told, or they are all the same")
        if steps < STEPS_MIN:
            return not_run(f"only {steps} steps fitted into the time; --full gives more", **numbers)
        text = f"with labels of other rows the loss on fresh rows is {loss:.3g}; the best guess costs {guess:.3g}"
        if math.isfinite(loss) and loss < self.leak_share * guess:
            return failed(f"{text}: the labels are seen", **numbers)
        right = _right(look, moved[-1].rows)
        if right is not None:
            share, usual, rows = right
            numbers |= {"right": share, "most_frequent_label": usual, "rows": rows}
            chance = (usual * (1.0 - usual) / rows) ** 0.5
            if share > usual + max(self.chance_widths * chance, self.margin_share):
                return failed(
                    f"with labels of other rows {share:.0%} of {rows} fresh rows are told right, and the most frequent "
                    f"label is that of {usual:.0%}: the labels are seen",
                    **numbers,
                )
        return passed(text, **numbers)


def _moved(batch: Batch, look: Look, by: int) -> Batch:
    """The batch with each label shifted by ``by`` rows."""
    call = class_call(look) or (look.loss_calls[-1] if look.loss_calls else None)
    if call is None or not isinstance(call.targets, Tensor):
        raise CannotError("the targets were not seen: no call of a known loss function")
    wanted = call.targets
    rows = rows_or_refuse(batch, 2)
    ids = {id(tensor) for tensor in token_ids(batch).values()}
    labels = [t for t in batch.tensors().values() if _is_target(t, wanted, rows) and id(t) not in ids]
    labels = labels or [t for name, t in batch.tensors().items() if "label" in name and len(t) == rows]
    chosen = {id(tensor) for tensor in labels}
    inputs = [t for t in tensors_of([list(batch.args), dict(batch.kwargs)]) if t.dim() > 0 and len(t) == rows]
    if not labels or (inputs and all(id(tensor) in chosen for tensor in inputs)):
        raise CannotError("the labels are no variable of their own: they are the inputs, or made from them")
    return batch.mapped(lambda tensor: torch.roll(tensor, by, 0) if id(tensor) in chosen else tensor)


def _right(look: Look, rows: int | None) -> tuple[float, float, int] | None:
    """The share of correct predictions, that of the most frequent target, and the number of targets; None without
    classes.
    """
    scores = scores_of(look, rows)
    if scores is None or not bool(scores.counted.any()):
        return None
    targets = scores.targets[scores.counted]
    right = (scores.logits.argmax(-1)[scores.counted] == targets).double().mean()
    usual = torch.unique(targets, return_counts=True)[1].max() / len(targets)
    return float(right), float(usual), len(targets)


def _is_target(tensor: Tensor, wanted: Tensor, rows: int) -> bool:
    if tensor.dim() == 0 or len(tensor) != rows or tensor.numel() != wanted.numel():
        return False
    return torch.equal(tensor.reshape(-1).double(), wanted.reshape(-1).double().to(tensor.device))
