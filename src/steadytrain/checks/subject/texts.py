"""The token ids of a batch with their labels, masks and special tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steadytrain.checks.subject.model_check import Batch, CannotError, Subject
from steadytrain.checks.subject.scores import scores_of
from steadytrain.checks.subject.tokens import token_ids

IGNORED = -100
TEXT_TASKS = ("causal-lm", "masked-lm", "seq2seq")
_LABELS = ("labels", "label", "targets", "target", "y", "decoder_labels", "lm_labels")
_IDS = ("input_ids", "decoder_input_ids")


@dataclass(frozen=True, eq=False)
class Special:
    """Ids of special tokens, from the tokenizer or the model's configuration."""

    bos: int | None
    eos: frozenset[int]
    pad: int | None


@dataclass(frozen=True, eq=False)
class Tokens:
    """One batch: ``ids`` [rows, positions], ``mask`` of the same shape or None, ``labels`` [rows, positions].

    ``labels`` hold ``IGNORED`` where the loss does not count. ``aligned``: ``labels[:, t]`` belongs to the token
    ``ids[:, t]`` and its mask, before any shift inside the model.
    """

    ids: Tensor
    mask: Tensor | None
    labels: Tensor
    aligned: bool


def tokens_of(subject: Subject, batch: Batch) -> Tokens:
    """The tokens and labels of a text batch.

    Raises:
        CannotError: the model does not learn tokens, or its labels are unknown.
    """
    if not learns_tokens(subject, batch):
        raise CannotError(f"the model learns no tokens (task: {subject.task})")
    found = token_ids(batch)
    if not found:
        raise CannotError("the model is called with no rows of token ids")
    ids = next((found[name] for name in _IDS if name in found), next(iter(found.values())))
    mask = _mask(batch, ids)
    named = {path.rsplit(".", 1)[-1].lower(): tensor for path, tensor in batch.tensors().items()}
    for name in _LABELS:
        labels = named.get(name)
        if labels is not None and labels.dim() == 2 and not labels.is_floating_point() and labels is not ids:
            same = labels.shape == ids.shape and subject.task != "seq2seq"
            return Tokens(ids, mask, labels, same and _is_aligned(ids, labels))
    scores = scores_of(subject.look(batch), batch.rows)
    if scores is None:
        raise CannotError("the labels that the loss is computed from were not seen")
    return Tokens(ids, mask, scores.targets.masked_fill(~scores.counted, IGNORED), False)


def learns_tokens(subject: Subject, batch: Batch) -> bool:
    """Whether the model learns tokens: by its task, or by labels beside ids if a trainer's own loss hides the task."""
    if subject.task in TEXT_TASKS:
        return True
    if subject.task != "unknown":
        return False
    shapes = {ids.shape for ids in token_ids(batch).values()}
    named = {path.rsplit(".", 1)[-1].lower(): tensor for path, tensor in batch.tensors().items()}
    return any(name in named and named[name].shape in shapes for name in _LABELS)


def special_of(subject: Subject) -> Special:
    """Special ids from the tokenizer, else from the model's configuration."""
    config = getattr(subject.model, "config", None)
    sources = [source for source in (subject.tokenizer, config) if source is not None]
    return Special(_id(sources, "bos"), _ids(sources, "eos"), _id(sources, "pad"))


def decoded(tokenizer: Any, ids: Sequence[int]) -> str:
    """The text of some ids on one line, or the ids if there is no tokenizer."""
    if tokenizer is None:
        return " ".join(map(str, ids))
    try:
        return " ".join(str(tokenizer.decode(list(ids))).split())
    except Exception as error:  # foreign code
        return f"not decoded: {type(error).__name__}"


def _is_aligned(ids: Tensor, labels: Tensor) -> bool:
    """Whether a label is the token at its own position: true for most counted labels unless they were shifted
    before.
    """
    counted = labels != IGNORED
    total = int(counted.sum())
    return total > 0 and int(((labels == ids) & counted).sum()) > 0.5 * total


def _mask(batch: Batch, ids: Tensor) -> Tensor | None:
    named: Mapping[str, Any] = {**batch.kwargs, **{p.rsplit(".", 1)[-1]: t for p, t in batch.tensors().items()}}
    mask = named.get("attention_mask")
    return mask if isinstance(mask, Tensor) and mask.shape == ids.shape else None


def _id(sources: Sequence[Any], what: str) -> int | None:
    for source in sources:
        value = getattr(source, f"{what}_token_id", None)
        value = value[0] if isinstance(value, (list, tuple)) and value else value
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def _ids(sources: Sequence[Any], what: str) -> frozenset[int]:
    for source in sources:
        value = getattr(source, f"{what}_token_id", None)
        values = value if isinstance(value, (list, tuple)) else [value]
        whole = [entry for entry in values if isinstance(entry, int)]
        if whole:
            return frozenset(whole)
    return frozenset()


def is_any(values: Tensor, ids: frozenset[int]) -> Tensor:
    """A mask of the ``values`` that are in ``ids``."""
    found = torch.zeros_like(values, dtype=torch.bool)
    for one in ids:
        found |= values == one
    return found
