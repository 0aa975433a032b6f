"""Do documents that are packed into one row affect each other?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from steadytrain.checks.subject.inputs import random_weights
from steadytrain.checks.subject.model_check import (
    Batch,
    CannotError,
    Check,
    Cost,
    Outcome,
    Subject,
    failed,
    not_run,
    passed,
)
from steadytrain.checks.subject.scores import scores_of
from steadytrain.checks.subject.short_training import evaluating, few_rows
from steadytrain.checks.subject.tokens import look_with_leaves, main_embedding
from steadytrain.core.plugins import threshold

POSITION_NAMES = ("position_ids", "positions", "input_pos")


@final
@dataclass(frozen=True)
class PackedDocumentLeak(Check):
    """A document does not see an earlier document packed into the same row.

    Means:
        Where positions restart inside a row, several documents share it. The check differentiates the scores of the
        second with respect to the embedded tokens of the first: the gradient must be exactly 0. If it is not, the
        attention ignores the packing, and the model learns to rely on unrelated text.

    Causes:
        - packing without a block-diagonal mask, or a backend that ignores `position_ids` and `cu_seqlens`
        - a mask lost when the collator or the attention backend changed

    Next:
        1. Use an attention backend that keeps packed documents apart (variable lengths, or a mask).
        2. If documents are meant to see each other, let positions continue across them.
    """

    cost: ClassVar[Cost] = "seconds"
    source: ClassVar[str] = "transformers PR46634 (packing mask lost); gradient test as for causality"

    leak_share: float = threshold(1e-6, "of the largest gradient; exactly 0 is right")

    def inspect(self, subject: Subject) -> Outcome:
        if subject.task != "causal-lm":
            return not_run(f"the task is {subject.task}: documents are packed for the next token only")
        found = _packed(subject)
        if found is None:
            return not_run("no row with several documents was seen: no positions begin again inside a row")
        batch, row, begin = found
        with evaluating(subject.model):
            embedding, _ = main_embedding(subject, batch)
            seen = look_with_leaves(subject, batch, embedding)
            assert seen.look is not None
            scores = scores_of(seen.look, batch.rows)
            if scores is None or scores.positions <= begin + 1:
                raise CannotError("the scores at each position cannot be told from the loss function's arguments")
            part = scores.logits[row, begin + 1]
            (gradient,) = torch.autograd.grad((part * random_weights(part)).sum(), seen.vectors[0])
        sizes = gradient[row].detach().abs().amax(dim=1)
        own, before = float(sizes[begin:].max()), float(sizes[:begin].max())
        numbers: dict[str, Any] = {"row": row, "begin": begin, "own": own, "document_before": before}
        if before > self.leak_share * max(own, 1e-30):
            return failed(f"the document at position {begin} of row {row} sees the one before it", **numbers)
        return passed(f"packed documents do not see each other (row {row}, position {begin})", **numbers)


def _packed(subject: Subject) -> tuple[Batch, int, int] | None:
    """A batch, one of its rows, and a position inside it at which a document begins."""
    for batch in subject.batches:
        small = few_rows(batch, 2)
        for positions in _positions(small):
            for row in range(len(positions)):
                begins = torch.nonzero(positions[row, 1:] == 0).flatten() + 1
                for begin in begins.tolist():
                    if begin + 1 < positions.shape[1] and int(positions[row, begin + 1]) == 1:
                        return small, row, int(begin)
    return None


def _positions(batch: Batch) -> list[Tensor]:
    named = {**batch.tensors(), **batch.kwargs}
    return [
        value
        for name, value in named.items()
        if name.rsplit(".", 1)[-1] in POSITION_NAMES and isinstance(value, Tensor) and value.dim() == 2
    ]
