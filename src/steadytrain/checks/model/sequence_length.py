"""Whether later rows are far longer than the first ones, or too long for the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from steadytrain.checks.subject.data_set_rows import sampled_rows
from steadytrain.checks.subject.model_check import Batch, Check, Cost, Outcome, Subject, not_run, passed, warned
from steadytrain.checks.subject.texts import learns_tokens
from steadytrain.checks.subject.tokens import token_ids
from steadytrain.core.plugins import threshold

ROWS_MAX = 512
_POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "block_size")


@final
@dataclass(frozen=True)
class SequenceLength(Check):
    """No row is far longer than those of the first batches, and all fit the model's positions.

    Means:
        Memory and time of a step grow with its longest row, those of attention with its square. A row many times longer
        than those of the first batches ends a run out of memory after hours. Positions beyond those of the model raise
        an index error, or are extrapolated and make the loss jump.

    Causes:
        - no truncation in the tokenization or the collator
        - documents joined by mistake, or binary content read as text
        - a tokenizer's maximum length that differs from the model's

    Next:
        1. Cut rows at the model's length when they are tokenized, or split them.
        2. Batch rows of similar length, and try the longest batch first.
    """

    cost: ClassVar[Cost] = "seconds"
    source: ClassVar[str] = "chosen: memory of attention at four times the length is sixteen times as much"

    times_max: float = threshold(4.0, "a row this many times longer than the first ones warns")
    padding_max: float = threshold(0.75, "this share of padding in the first batches warns")

    def inspect(self, subject: Subject) -> Outcome:
        if not learns_tokens(subject, subject.batches[0]):
            return not_run(f"the model learns no tokens (task: {subject.task})")
        lengths: list[int] = []
        places = 0
        for batch in subject.batches:
            ids = next(iter(token_ids(batch).values()), None)
            if ids is None:
                continue
            places += ids.numel()
            lengths += _lengths(batch, ids)
        if not lengths:
            return not_run("the model is called with no rows of token ids")
        later = [_length(row) for row in sampled_rows(subject, ROWS_MAX)]
        found = [length for length in later if length is not None]
        positions = _positions(subject)
        longest_first, longest = max(lengths), max([*lengths, *found])
        padding = 1.0 - sum(lengths) / max(places, 1)
        numbers: dict[str, Any] = {
            "longest_of_first": longest_first,
            "longest_of_data": longest,
            "rows_of_data": len(found),
            "padding_share": padding,
            "positions": positions,
        }
        told = []
        if positions is not None and longest > positions:
            told.append(f"a row has {longest} tokens, and the model {positions} positions")
        elif longest > self.times_max * longest_first:
            told.append(f"a row of the data has {longest} tokens, those of the first batches at most {longest_first}")
        if padding > self.padding_max:
            told.append(f"{padding:.0%} of the first batches is padding")
        if told:
            return warned("; ".join(told), **numbers)
        data = f", {longest} of {len(found)} rows of the data" if found else ""
        return passed(f"at most {longest_first} tokens in the first batches{data}", **numbers)


def _lengths(batch: Batch, ids: Tensor) -> list[int]:
    mask = batch.kwargs.get("attention_mask")
    if isinstance(mask, Tensor) and mask.shape == ids.shape:
        return [int(count) for count in (mask != 0).sum(dim=1)]
    return [int(ids.shape[1])] * len(ids)


def _length(row: Mapping[str, Any]) -> int | None:
    """Number of tokens in a data row, None if it is not tokenized."""
    value = row.get("input_ids")
    if isinstance(value, torch.Tensor):
        value = value.reshape(-1)
    return len(value) if value is not None and hasattr(value, "__len__") and not isinstance(value, str) else None


def _positions(subject: Subject) -> int | None:
    config = getattr(subject.model, "config", None)
    if config is not None and getattr(config, "relative_attention_num_buckets", None):
        return None  # relative positions have no limit
    for name in _POSITIONS:
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return None
