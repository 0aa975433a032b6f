"""The same question as causality, asked by changing tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, final

import torch
from torch import Tensor

from steadytrain.checks._scores import scores_of
from steadytrain.checks._tokens import token_ids
from steadytrain.checks._training import evaluating, few_rows
from steadytrain.checks.contract import CannotError, Check, Cost, Outcome, Subject, failed, not_run, passed


@final
@dataclass(frozen=True)
class CausalityByChange(Check):
    """When later tokens are changed, the predictions before them stay the same.

    Means:
        The second half of the tokens is exchanged for others, and the scores of the first half are compared. This sees
        leaks that no gradient shows: through choices (routing of experts, sorting, thresholds), quantised layers and
        indices made from tokens. A difference above rounding is a leak.

    Causes:
        - those of causality
        - routing with a capacity: tokens that come later push earlier ones out of their expert
        - statistics over the sequence (a length, a maximum, a normalisation) that later tokens change

    Next:
        1. Run causality: if it passes, the leak goes through a choice and not through attention.
        2. Compare the modules' outputs with and without the change: the first that differs before the change is it.
    """

    cost: ClassVar[Cost] = "seconds"
    source: ClassVar[str] = "perturbation test for paths without gradient (quantised, routed)"

    rounding_share: float = field(
        default=1e-4, metadata={"about": "of the largest score: what kernels may differ by for other values beside"}
    )

    def inspect(self, subject: Subject) -> Outcome:
        if subject.task != "causal-lm":
            return not_run(f"the task is {subject.task}: only the next token must not be seen")
        batch = few_rows(subject.batches[0], 2)
        named = token_ids(batch)
        if not named:
            raise CannotError("no token ids are among the arguments of the model")
        ids = next(iter(named.values()))
        half = ids.shape[1] // 2
        low, high = int(ids.min()), int(ids.max())
        if high == low or half < 1:
            return not_run("the batch has one kind of token only, or one position")
        changed = ids.clone()
        changed[:, half:] = low + (ids[:, half:] - low + 1 + (high - low) // 3) % (high - low + 1)

        def other(tensor: Tensor) -> Tensor:
            return changed if tensor is ids else tensor

        exchanged = batch.mapped(other)
        if token_ids(exchanged) and next(iter(token_ids(exchanged).values())) is not changed:
            raise CannotError("the token ids cannot be exchanged")
        with evaluating(subject.model), torch.no_grad():
            one, two = subject.look(batch), subject.look(exchanged)
        if not _same_ids(one.calls, two.calls, half):
            raise CannotError("the script's lines make the token ids anew: they cannot be exchanged")
        before, after = scores_of(one, batch.rows), scores_of(two, batch.rows)
        if before is None or after is None or before.logits.shape != after.logits.shape:
            raise CannotError("the scores at each position cannot be told from the loss function's arguments")
        first, second = before.logits[:, :half].detach().float(), after.logits[:, :half].detach().float()
        largest, difference = float(first.abs().max()), float((first - second).abs().max())
        numbers = {"difference": difference, "largest": largest, "changed_from": half}
        if difference > self.rounding_share * max(largest, 1e-12):
            return failed(
                f"scores before position {half} change by {difference:.2g} with the tokens after it", **numbers
            )
        if difference > 0.0:
            return passed(f"scores before the change differ by rounding alone ({difference:.2g})", **numbers)
        return passed("scores before the change are the same to the last bit", **numbers)


def _same_ids(one: object, two: object, half: int) -> bool:
    """Whether the second call really got other tokens."""
    from steadytrain.checks.contract import tensors_of

    first = [t for t in tensors_of([list(c[1]) + list(c[2].values()) for c in one]) if not t.is_floating_point()]  # type: ignore[attr-defined]
    second = [t for t in tensors_of([list(c[1]) + list(c[2].values()) for c in two]) if not t.is_floating_point()]  # type: ignore[attr-defined]
    return any(a.shape == b.shape and not torch.equal(a, b) for a, b in zip(first, second, strict=False))
