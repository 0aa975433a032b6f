"""Are the labels of a language model the next tokens?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor
from torch.nn import functional

from steadytrain.checks.subject.model_check import (
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
from steadytrain.checks.subject.scores import Scores, scores_of
from steadytrain.checks.subject.short_training import few_rows, fit, without_dropout
from steadytrain.checks.subject.tokens import token_ids
from steadytrain.core.plugins import threshold

SHIFTS = (0, 1, 2, 3)
STEPS_MIN = 20


@final
@dataclass(frozen=True)
class LabelAlignment(Check):
    """The target at each position is the next token: shifted by one, exactly once.

    Means:
        The check compares the targets that the loss function received with the model's token ids. At a shift of 0 the
        model learns to copy its input; at 2 it learns to skip a token, and the loss stays slightly too high. If the
        loss call was not recorded, the check trains the model for some steps on one batch and takes the shift at which
        its scores fit the tokens best.

    Causes:
        - labels shifted in the data loader and again in the model
        - labels that are a copy of the inputs, for a model that does not shift
        - a new library version that does the shift itself

    Next:
        1. If the model shifts labels itself, pass labels equal to the inputs; if not, shift them yourself.
        2. Print one row: the inputs and the targets as cross_entropy gets them, one under the other.
    """

    cost: ClassVar[Cost] = "seconds"
    source: ClassVar[str] = "double shift: transformers PR47395; label alignment: argmin over k of CE(logits_t, x_t+k)"

    agree_share: float = threshold(0.6, "of the counted targets that must be the token at the shift")
    steps_max: int = threshold(60, "training steps if the loss call was not recorded")

    def inspect(self, subject: Subject) -> Outcome:
        if subject.task in ("classification", "regression", "masked-lm", "seq2seq"):
            return not_run(f"the task is {subject.task}: its labels are no next tokens")
        batch = subject.batches[0]
        ids = next(iter(token_ids(batch).values()), None)
        if ids is None:
            return not_run("no token ids are among the arguments of the model: it has no text")
        with torch.no_grad():
            look = subject.look(batch)
        scores = scores_of(look, batch.rows)
        if scores is None:
            return self._by_training(subject, look)
        shares = {shift: _agreement(scores, ids, shift) for shift in SHIFTS}
        best = max(shares, key=shares.__getitem__)
        numbers: dict[str, Any] = {f"shift_{shift}": share for shift, share in shares.items()}
        if shares[best] < self.agree_share:
            return not_run("the targets are no tokens of the input at any shift up to 3", **numbers)
        return _verdict(best, f"{shares[best]:.0%} of the targets are the token at shift {best}", numbers)

    def _by_training(self, subject: Subject, look: Look) -> Outcome:
        """The shift that the model's scores fit after some steps on one batch."""
        batch = few_rows(subject.batches[0], 4)
        ids = next(iter(token_ids(batch).values()))
        if _token_scores(look, subject.batches[0].rows) is None:
            return not_run("neither the loss function's arguments nor scores at each position were seen")
        del look
        without_dropout(subject.model)
        found = fit(subject, [batch], steps=self.steps_max, seconds=subject.time_left())
        with torch.no_grad():
            logits = _token_scores(subject.look(batch), batch.rows)
        if logits is None or len(found.losses) < STEPS_MIN or found.last > 0.8 * found.first:
            return not_run(f"too little was learned in {len(found.losses)} steps to tell; --full gives more")
        costs = {}
        for shift in SHIFTS:
            end = min(logits.shape[1], ids.shape[1]) - shift
            flat = logits[:, :end].flatten(0, 1).float()
            costs[shift] = float(functional.cross_entropy(flat, ids[:, shift : shift + end].flatten().long()))
        best = min(costs, key=costs.__getitem__)
        numbers: dict[str, Any] = {f"loss_at_shift_{shift}": cost for shift, cost in costs.items()}
        return _verdict(best, f"after {len(found.losses)} steps the scores fit the tokens at shift {best}", numbers)


def _verdict(shift: int, text: str, numbers: Mapping[str, Any]) -> Outcome:
    if shift == 1:
        return passed(text, **numbers)
    how = "the targets are the inputs themselves" if shift == 0 else "the labels are shifted more than once"
    return failed(f"{text}: {how}", **numbers)


def _agreement(scores: Scores, ids: Tensor, shift: int) -> float:
    length = min(scores.positions, ids.shape[1] - shift)
    if len(ids) != len(scores.targets) or length < 1:
        return 0.0
    targets, counted = scores.targets[:, :length], scores.counted[:, :length]
    wanted = ids[:, shift : shift + length].to(targets.device)
    total = int(counted.sum())
    return float(((targets == wanted) & counted).sum()) / total if total else 0.0


def _token_scores(look: Look, rows: int | None) -> Tensor | None:
    """The scores [rows, positions, classes] among the model's outputs, None if there are none."""
    found = [t for t in tensors_of([look.output]) if t.dim() == 3 and t.is_floating_point() and len(t) == rows]
    return max(found, key=lambda tensor: tensor.shape[-1]) if found else None
