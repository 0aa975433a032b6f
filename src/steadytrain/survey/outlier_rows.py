"""The conspicuous batch rows at the onset: a few of their values, and their text if token ids can be decoded.

The output is bounded, redacted and free of control characters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from steadytrain.report.wording import clean
from steadytrain.storage.redaction import redact_text
from steadytrain.survey.tensor_values import is_ids
from steadytrain.survey.token_texts import Found, Words, found_now, words_of

ROWS_MAX, TENSORS_MAX, VALUES_MAX = 8, 4, 16
TOKENS_MAX, TEXT_MAX = 256, 400
UNKNOWN_ROWS_MAX = 256
"""Bound on the id rows over which the share of unknown tokens is counted."""

CALLS_MAX = 64
"""Model calls of a step whose inputs are remembered, by reference."""

COUNTED_MIN = 4
"""A row of consecutive numbers counts as positions from this length on. Shorter rows may be so by chance."""

BEFORE = 2
"""Number of values shown before the first non-finite one."""


class Rows:
    """References to the tensors of the current step. Copies of the onset's tensors stay until the end."""

    def __init__(self) -> None:
        self._step = 0
        self._tensors: list[tuple[str, Tensor]] = []
        self._calls: list[list[tuple[str, Tensor]]] = []
        self._call = 0
        self._kept: list[tuple[str, Tensor]] | None = None
        self._kept_step = 0
        self._found = Found()
        self._ids: list[Tensor] = []
        self._losses: list[float] = []

    def called(self, step: int, named: Iterable[tuple[str, Tensor]]) -> None:
        """Registers the inputs of a model call in ``step``. The first has the batch, or a part of it."""
        if step == self._step:
            if len(self._calls) < CALLS_MAX:
                self._calls.append([(name, tensor) for name, tensor in named if tensor.dim() > 0][:TENSORS_MAX])
            return
        self._step = step
        self._tensors = [(name, tensor) for name, tensor in named if tensor.dim() > 0][:TENSORS_MAX]
        self._calls = [self._tensors]
        ids = next((tensor for _, tensor in self._tensors if is_ids(tensor)), None)
        if ids is not None and sum(len(one) for one in self._ids) < UNKNOWN_ROWS_MAX:
            self._ids.append(ids.detach().clone())

    def mark(
        self,
        target: Tensor | None,
        model_folder: str | None = None,
        *,
        call: int = 0,
        call_of_target: int = 0,
        losses: int = 0,
    ) -> None:
        """Marks the current step, right before its update, as the one whose rows are reported.

        Args:
            call: the model call whose input has the rows, from 0.
            call_of_target: the loss call that ``target`` is of, of ``losses`` in the step. As many model calls as loss
                calls are the micro-batches of the step, so its rows are those of the model call at the same place.
        """
        if 0 < call < len(self._calls):
            self._call, self._tensors, target = call, self._calls[call], None
        elif 0 < call_of_target < len(self._calls) == losses:
            self._call, self._tensors = call_of_target, self._calls[call_of_target]
        rows = self._tensors[0][1].shape[0] if self._tensors else 0
        kept = [(name, tensor.detach().clone()) for name, tensor in self._tensors]
        if target is not None and rows and target.dim() and target.numel() % rows == 0:
            kept.append(("target", target.detach().clone().reshape(rows, -1)))
        self._kept, self._kept_step = kept, self._step
        self._found = found_now(model_folder)

    def finish(self, facts: dict[str, Any]) -> dict[str, Any]:
        """``batch_rows`` and the facts about the tokenizer. ``facts`` are those of the other subjects."""
        if self._kept is None:
            self.mark(None)
        words = words_of(self._found)
        told: dict[str, Any] = {}
        if words is not None:
            told["tokenizer"] = words.kind
            told["tokenizer_size"] = words.size if words.is_tokenizer else None
            if words.unknown is not None and self._ids:
                total = sum(ids.numel() for ids in self._ids)
                told["token_unknown_share"] = sum(int((ids == words.unknown).sum()) for ids in self._ids) / max(
                    1, total
                )
        chosen = self._suspects(facts)
        losses = facts.get("row_loss") or []
        told["batch_rows"] = [
            {
                "row": row,
                "step": self._kept_step,
                "call": self._call,
                "loss": losses[row] if row < len(losses) else None,
                **_shown(name, tensor[row], words),
            }
            for row in chosen
            for name, tensor in self._kept or ()
            if row < tensor.shape[0]
        ]
        return told

    def _suspects(self, facts: dict[str, Any]) -> list[int]:
        """The rows that another subject flagged at this step, in order of the subjects."""
        found: list[int] = []
        for entry in facts.get("batch_nonfinite") or ():
            found += entry["rows"] if entry["step"] == self._kept_step else []
        table = facts.get("token_rows")
        for _, tensor in self._kept or ():
            if facts.get("tokens_out_of_range") and isinstance(table, int) and is_ids(tensor):
                outside = ((tensor < 0) & (tensor != -100)) | (tensor >= table)
                found += outside.reshape(len(tensor), -1).any(1).nonzero().flatten().tolist()
        for mask in facts.get("empty_masks") or ():
            found += mask["rows"] or range(mask["of"] if mask["whole"] else 0)
        for made in facts.get("nonfinite_made") or ():
            same = made["step"] == self._kept_step and any(made["of"] == len(tensor) for _, tensor in self._kept or ())
            found += made["rows"] if same else []
        for name in ("rows_suspect", "rows_without_labels", "ctc_infeasible_rows"):
            found += facts.get(name) or ()
        return list(dict.fromkeys(found))[:ROWS_MAX]


def _shown(name: str, row: Tensor, words: Words | None) -> dict[str, Any]:
    """One row of one tensor: a few values, and its text."""
    flat = row.reshape(-1)
    first = 0
    shown: dict[str, Any] = {"tensor": clean(name, length_max=TEXT_MAX), "dtype": str(row.dtype).removeprefix("torch.")}
    if row.is_floating_point() and flat.numel():
        bad = (~flat.isfinite()).nonzero().flatten()
        first = max(0, int(bad[0]) - BEFORE) if len(bad) else 0
        good = flat[flat.isfinite()].float()
        if good.numel():
            shown |= {"smallest": float(good.min()), "largest": float(good.max())}
    shown |= {"elements": flat.numel(), "first": first, "values": _values(flat[first : first + VALUES_MAX])}
    text = _text_of(flat, words) if _may_be_text(flat) else None
    return {**shown, "text": text}


def _values(values: Tensor) -> list[Any]:
    if not values.is_floating_point():
        return [int(value) for value in values.tolist()]
    return [float(f"{value:.5g}") if math.isfinite(value) else str(value) for value in values.float().tolist()]


def _text_of(ids: Tensor, words: Words | None) -> str | None:
    """The text of a row of ids; None if it cannot be decoded."""
    if words is None:
        return None
    inside: Sequence[int] = [int(one) for one in ids[:TOKENS_MAX].tolist() if one >= 0]
    if words.size is not None:
        inside = [one for one in inside if one < words.size]
    try:
        return clean(redact_text(words.text(inside)), length_max=TEXT_MAX) if inside else None
    except Exception:  # the script's own decode may fail on unknown ids
        return None


def _may_be_text(row: Tensor) -> bool:
    """Whether a row of integers may be token ids: no class, no mask (0 and 1 only), no positions."""
    if row.is_floating_point() or row.is_complex() or row.dtype == torch.bool or row.numel() < 2:
        return False
    is_counted = row.numel() >= COUNTED_MIN and bool((row.diff() == 1).all())
    return bool((row > 1).any()) and not is_counted
