"""Test causality by changing tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from steadytrain.checks.subject.model_check import (
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
from steadytrain.checks.subject.scores import scores_of
from steadytrain.checks.subject.short_training import evaluating, few_rows
from steadytrain.checks.subject.tokens import token_ids
from steadytrain.core.plugins import threshold


@final
@dataclass(frozen=True)
class CausalityByChange(Check):
    """Changing later tokens does not change earlier predictions.

    Means:
        The check replaces the second half of the tokens and compares the scores of the first half. This finds leaks
        without a gradient: through discrete choices (expert routing, sorting, thresholds), quantised layers and indices
        made from tokens. A difference above rounding is a leak.

    Causes:
        - the causes of causality
        - routing with a capacity: tokens that come later push earlier ones out of their expert
        - statistics over the sequence (a length, a maximum, a normalisation) that later tokens change

    Next:
        1. Run causality: if it passes, the leak is in a discrete choice, not in attention.
        2. Compare the modules' outputs with and without the change: the first that differs before the change leaks.
    """

    cost: ClassVar[Cost] = "seconds"
    source: ClassVar[str] = "perturbation test for paths without gradient (quantised, routed)"

    rounding_share: float = threshold(1e-4, "of the largest score: rounding of kernels when other values change")

    def inspect(self, subject: Subject) -> Outcome:
        if subject.task != "causal-lm":
            return not_run(f"the task is {subject.task}: only the next token must not be seen")
        batch = few_rows(subject.batches[0], 2)
        if not token_ids(batch):
            raise CannotError("no token ids are among the arguments of the model")
        tokens = [t for name, t in batch.tensors().items() if _may_be_tokens(name, t)]
        if not tokens:
            raise CannotError("the token ids are not among the variables that the loss is computed from")
        half = min(tensor.shape[1] for tensor in tokens) // 2
        chosen = {id(tensor) for tensor in tokens}
        exchanged = batch.mapped(lambda tensor: _changed(tensor, half) if id(tensor) in chosen else tensor)
        with evaluating(subject.model), torch.no_grad():
            one, two = subject.look(batch), subject.look(exchanged)
        if not _got_others(one, two):
            raise CannotError("the script's lines make the token ids anew: they cannot be exchanged")
        before, after = scores_of(one, batch.rows), scores_of(two, batch.rows)
        if before is None or after is None or before.logits.shape != after.logits.shape:
            raise CannotError("the scores at each position cannot be told from the loss function's arguments")
        first, second = before.logits[:, :half].detach().float(), after.logits[:, :half].detach().float()
        largest, difference = float(first.abs().max()), float((first - second).abs().max())
        numbers: dict[str, Any] = {"difference": difference, "largest": largest, "changed_from": half}
        if difference > self.rounding_share * max(largest, 1e-12):
            return failed(
                f"scores before position {half} change by {difference:.2g} with the tokens after it", **numbers
            )
        if difference > 0.0:
            return passed(f"scores before the change differ by rounding alone ({difference:.2g})", **numbers)
        return passed("scores before the change are the same to the last bit", **numbers)


def _may_be_tokens(name: str, tensor: Tensor) -> bool:
    """Whether an integer tensor [rows, positions] may hold tokens: more than two values, not a mask, positions or
    types.
    """
    if tensor.dim() != 2 or tensor.dtype not in (torch.int64, torch.int32) or tensor.shape[1] < 4:
        return False
    if any(word in name for word in ("mask", "position", "type")) or int(tensor.min()) < 0:
        return False
    return int(tensor.max()) - int(tensor.min()) > 1


def _changed(tokens: Tensor, begin: int) -> Tensor:
    """Replace the tokens from ``begin`` on with others in the batch's range."""
    low, high = int(tokens.min()), int(tokens.max())
    changed = tokens.clone()
    changed[:, begin:] = low + (tokens[:, begin:] - low + 1 + (high - low) // 3) % (high - low + 1)
    return changed


def _got_others(one: Look, two: Look) -> bool:
    """Whether the model really received different tokens the second time."""
    first, second = ([t for t in tensors_of([c[1], dict(c[2])]) if t.dtype == torch.int64] for c in _calls(one, two))
    return any(a.shape == b.shape and not torch.equal(a, b) for a, b in zip(first, second, strict=False))


def _calls(one: Look, two: Look) -> list[Any]:
    if not one.calls or not two.calls:
        raise CannotError("the model was not called")
    return [one.calls[-1], two.calls[-1]]
