"""Inspect the tokens and labels of the first batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from steadytrain.checks.subject.model_check import CannotError, Check, Cost, Outcome, Subject, failed, passed, warned
from steadytrain.checks.subject.texts import IGNORED, Special, Tokens, decoded, is_any, special_of, tokens_of
from steadytrain.checks.subject.tokens import main_embedding
from steadytrain.core.plugins import threshold

EXAMPLES_MAX = 3
EXAMPLE_TOKENS_MAX = 64


@final
@dataclass(frozen=True)
class TokenAudit(Check):
    """Tokens and labels of the first batches are valid.

    Means:
        Every id has a row in the embedding, every row of the batch has labels that count, padding does not count, the
        end of a sequence does, and no row has two beginning tokens. If all labels of a batch are -100 its loss is NaN,
        or 0.0 if a trainer hides that. A model that never learns the end of a sequence does not stop generating. If
        rows are cut before the answer, the model cannot learn it.

    Causes:
        - the response template for masking labels is tokenized differently inside a text
        - rows are cut at the maximum length, before the answer
        - padding is the same token as the end, and labels are masked by its value
        - a chat template writes the beginning of a sequence, and the tokenizer adds another
        - left padding with a mask that is all zero for some rows

    Next:
        1. Read the decoded rows in the numbers: which part counts in the loss?
        2. Mask padding by its position (attention mask 0), not by its value.
        3. Print tokens of the response template alone and inside a row: they must be the same.
    """

    cost: ClassVar[Cost] = "free"
    source: ClassVar[str] = "trl #6668, #1920, #976; transformers #23530; Megatron-Bridge #4660; axolotl #1706"

    without_share: float = threshold(
        0.05, "this share of rows without a label that counts fails; a smaller share warns"
    )
    double_share: float = threshold(0.01, "this share of rows with two beginning tokens fails")
    cut_share: float = threshold(0.3, "this share of rows that fill the length and end in the middle warns")

    def inspect(self, subject: Subject) -> Outcome:
        embedding, _ = main_embedding(subject, subject.batches[0])
        special = special_of(subject)
        seen = _Seen(rows_of_embedding=embedding.num_embeddings, special=special)
        examples: list[dict[str, Any]] = []
        for batch in subject.batches:
            try:
                tokens = tokens_of(subject, batch)
            except CannotError:
                if not seen.rows:
                    raise
                continue
            seen.add(tokens)
            examples += _examples(subject, tokens, EXAMPLES_MAX - len(examples))
        size = _size(subject.tokenizer)
        numbers = {**seen.numbers(), "tokenizer_size": size, "examples": examples}
        return self._judged(seen, size, numbers)

    def _judged(self, seen: _Seen, size: int | None, numbers: Mapping[str, Any]) -> Outcome:
        faults, oddities = [], []
        if seen.largest >= seen.rows_of_embedding or seen.least < 0:
            faults.append(
                f"ids go from {seen.least} to {seen.largest}; the embedding has {seen.rows_of_embedding} rows"
            )
        if size is not None and size > seen.rows_of_embedding:
            faults.append(f"the tokenizer has {size} tokens and the embedding {seen.rows_of_embedding} rows")
        without = seen.without / max(seen.rows, 1)
        if seen.empty_batches or without >= self.without_share:
            faults.append(f"{seen.without} of {seen.rows} rows have no label that counts")
        elif seen.without:
            oddities.append(f"{seen.without} of {seen.rows} rows have no label that counts")
        if seen.masked_rows:
            faults.append(f"{seen.masked_rows} rows have an attention mask of zeros")
        if seen.pads:
            faults.append(f"{seen.pads / max(seen.counted, 1):.1%} of the labels that count are padding")
        if seen.double / max(seen.rows, 1) >= self.double_share and seen.double:
            faults.append(f"{seen.double} of {seen.rows} rows begin with two beginning-of-sequence tokens")
        if seen.ends_in_ids and not seen.ends and seen.counted:
            faults.append("no end of a sequence counts in the loss, though the rows have one")
        elif seen.padded_rows and not seen.ends and seen.special.eos and seen.counted and not seen.ends_in_ids:
            oddities.append("rows are padded, so they end, and no end-of-sequence token is in them")
        if seen.cut / max(seen.rows, 1) >= self.cut_share and seen.padded_rows:
            oddities.append(f"{seen.cut} of {seen.rows} rows fill the length and end in the middle")
        if faults:
            return failed("; ".join([*faults, *oddities]), **numbers)
        if oddities:
            return warned("; ".join(oddities), **numbers)
        share = seen.counted / max(seen.labels, 1)
        return passed(
            f"{seen.rows} rows: {share:.0%} of the labels count, some in every row, none of padding", **numbers
        )


@dataclass
class _Seen:
    """Counts over the batches."""

    rows_of_embedding: int
    special: Special
    rows: int = 0
    labels: int = 0
    counted: int = 0
    without: int = 0
    empty_batches: int = 0
    masked_rows: int = 0
    padded_rows: int = 0
    pads: int = 0
    double: int = 0
    ends: int = 0
    ends_in_ids: int = 0
    cut: int = 0
    largest: int = -1
    least: int = 0

    def add(self, tokens: Tokens) -> None:
        ids, labels, mask = tokens.ids, tokens.labels, tokens.mask
        counted = labels != IGNORED
        per_row = counted.sum(dim=1)
        self.rows += len(ids)
        self.labels += labels.numel()
        self.counted += int(counted.sum())
        self.without += int((per_row == 0).sum())
        self.empty_batches += int(per_row.sum() == 0)
        self.largest = max(self.largest, int(ids.max()))
        self.least = min(self.least, int(ids.min()))
        self.ends += int((is_any(labels, self.special.eos) & counted).sum())
        padding = self._padding(ids, mask)
        self.padded_rows += int(padding.any(dim=1).sum())
        if mask is not None:
            self.masked_rows += int(((mask != 0).sum(dim=1) == 0).sum())
        self.pads += self._supervised_padding(tokens, counted, padding)
        self._ends_and_beginnings(ids, padding)

    def _padding(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        if mask is not None:
            return mask == 0
        if self.special.pad is None or self.special.pad in self.special.eos:
            return torch.zeros_like(ids, dtype=torch.bool)
        return ids == self.special.pad

    def _supervised_padding(self, tokens: Tokens, counted: Tensor, padding: Tensor) -> int:
        if tokens.aligned:
            return int((counted & padding).sum())
        if self.special.pad is None:
            return 0
        pads = (tokens.labels == self.special.pad) & counted
        if self.special.pad in self.special.eos:
            # The first of a run is the end; the others are padding.
            pads[:, 1:] &= tokens.labels[:, :-1] == self.special.pad
            pads[:, 0] = False
        return int(pads.sum())

    def _ends_and_beginnings(self, ids: Tensor, padding: Tensor) -> None:
        real_ends = is_any(ids, self.special.eos) & ~padding
        # An end token at the start of a row belongs to the text before it.
        self.ends_in_ids += int(real_ends[:, 1:].sum())
        bos = self.special.bos
        places = torch.arange(ids.shape[1], device=ids.device)
        first = torch.where(padding, ids.shape[1], places).amin(dim=1).clamp(max=ids.shape[1] - 1)
        second = (first + 1).clamp(max=ids.shape[1] - 1)
        rows = torch.arange(len(ids), device=ids.device)
        if bos is not None and bos != self.special.pad and ids.shape[1] > 1:
            self.double += int(((ids[rows, first] == bos) & (ids[rows, second] == bos) & (second > first)).sum())
        full = ~padding.any(dim=1)
        self.cut += int((full & ~is_any(ids[:, -1], self.special.eos)).sum())

    def numbers(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "supervised_share": self.counted / max(self.labels, 1),
            "rows_without_labels": self.without,
            "rows_all_masked": self.masked_rows,
            "padding_that_counts": self.pads,
            "ends_that_count": self.ends,
            "rows_with_two_beginnings": self.double,
            "rows_cut": self.cut,
            "largest_id": self.largest,
            "embedding_rows": self.rows_of_embedding,
        }


def _examples(subject: Subject, tokens: Tokens, count: int) -> list[dict[str, Any]]:
    """Rows as text: the whole row and its counted part, those without counted tokens first."""
    counted = tokens.labels != IGNORED
    order: Sequence[int] = torch.argsort(counted.sum(dim=1), stable=True).tolist()
    found = []
    for row in order[:count]:
        labels = tokens.labels[row][counted[row]][:EXAMPLE_TOKENS_MAX].tolist()
        ids = tokens.ids[row][:EXAMPLE_TOKENS_MAX].tolist()
        found.append(
            {"row": row, "text": decoded(subject.tokenizer, ids), "counts": decoded(subject.tokenizer, labels)}
        )
    return found


def _size(tokenizer: Any) -> int | None:
    try:
        return len(tokenizer) if tokenizer is not None else None
    except TypeError:
        return None
