"""Duplicates, repeated n-grams and order of the loader's data, and which process reads what."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from steadytrain.checks.data.data_check import Circumstances, DataCheck, Finding
from steadytrain.checks.data.data_pass import check_classes, check_name, look_with
from steadytrain.checks.data.sources import Wanted, of_object
from steadytrain.checks.data.tokenizing import Tokenizer, tokenizer_of
from steadytrain.checks.subject.data_set_rows import first_rows, is_indexed
from steadytrain.checks.subject.model_check import (
    Batch,
    Check,
    Cost,
    Outcome,
    Subject,
    failed,
    not_run,
    passed,
    tensors_of,
    warned,
)
from steadytrain.checks.subject.tokens import token_ids
from steadytrain.core.errors import UsageError
from steadytrain.core.plugins import threshold

ROWS_MAX = {"fast": 1000, "full": 10_000}
BATCHES_MIN = 2


@final
@dataclass(frozen=True)
class LoaderData(Check):
    """The loader gives different rows, shuffled, without endless repetitions.

    Means:
        The first batches share rows, or the data set holds duplicates, repeated n-grams, empty rows or numbers that are
        not finite, or the loader does not shuffle sorted rows. The model memorizes repeated rows: the loss falls below
        what the rest allows. It forgets sorted rows in turn. A non-finite input makes the loss of its batch NaN.

    Causes:
        - a loader or sampler created anew in every step, with the same seed
        - no ``DistributedSampler`` in a run of several processes
        - ``shuffle`` left out, or a buffer shorter than the runs of one label
        - data that was merged twice, or written before a filter
        - text stuck in a loop, tables of zeros, rows of dashes

    Next:
        1. Set ``shuffle=True``, and create loader and sampler once, before the loop.
        2. Run ``steadytrain check-data`` on the whole data: it names the rows.
    """

    cost: ClassVar[Cost] = "seconds"
    source: ClassVar[str] = "OLMo 2 (2501.00656): repeated n-grams; Lightning #18780 and ml-engineering: repeated data"

    repeated_share: float = threshold(0.1, "this share of repeated rows in the first batches warns")

    def inspect(self, subject: Subject) -> Outcome:
        repeated, rows = _repeated(subject.batches)
        data = first_rows(subject, ROWS_MAX["full" if subject.thorough else "fast"])
        length = len(subject.dataset) if is_indexed(subject.dataset) else None
        if rows == 0 and not data:
            return not_run("neither rows of the batches nor of a data set can be told")
        looking = {check_name(cls): cls for cls in check_classes() if cls.of_loader != "no"}
        findings = _findings(data, subject, looking.values())
        numbers: dict[str, Any] = {
            "rows_of_batches": rows,
            "repeated_in_batches": repeated,
            "rows_of_data": len(data),
            "shuffles": _shuffles(subject.loader),
            **{finding.check: dict(finding.judgement.numbers) for finding in findings},
        }
        faults, oddities = self._batches(subject, repeated, rows, length)
        oddities += _undivided(subject.loader)
        for finding in findings:
            of_order = looking[finding.check].of_loader == "order"
            shuffled = of_order and _shuffles(subject.loader) is not False
            status = finding.judgement.status
            if status in ("fail", "warn") and not shuffled:
                grave = of_order or (status == "fail" and looking[finding.check].of_loader == "fault")
                order = ", and the loader does not shuffle" if of_order else ""
                (faults if grave else oddities).append(f"{finding.judgement.message}{order}")
        if faults:
            return failed("; ".join([*faults, *oddities]), **numbers)
        if oddities:
            return warned("; ".join(oddities), **numbers)
        looked = f"{rows} rows of the first batches" + (f", {len(data)} of the data set" if data else "")
        return passed(f"{looked}: no more repeats than usual", **numbers)

    def _batches(self, subject: Subject, repeated: int, rows: int, length: int | None) -> tuple[list[str], list[str]]:
        if len(subject.batches) < BATCHES_MIN or repeated < self.repeated_share * rows:
            return [], []
        told = f"{repeated} of {rows} rows of the first {len(subject.batches)} batches came before"
        if length is not None and rows <= length:
            return [f"{told}, though the data set has {length}"], []
        if length is None and subject.loader is not None:
            return [], [told]
        return [], []  # all data in every step, or batches from code


def _repeated(batches: Sequence[Batch]) -> tuple[int, int]:
    """Rows that an earlier batch already held, and all rows; 0 if rows cannot be identified."""
    seen: set[bytes] = set()
    repeated = rows = 0
    for batch in batches:
        tensor = _rows_tensor(batch)
        if tensor is None:
            return 0, 0
        contents = {row.numpy().tobytes() for row in tensor.detach().cpu().flatten(1).contiguous()}
        rows += len(contents)
        repeated += len(contents & seen)
        seen |= contents
    return repeated, rows


def _rows_tensor(batch: Batch) -> Tensor | None:
    """The tensor that identifies rows: token ids, else the largest with the batch's rows."""
    ids = token_ids(batch)
    if ids:
        return max(ids.values(), key=lambda tensor: tensor.numel())
    tensors = [t for t in tensors_of([list(batch.args), dict(batch.kwargs)]) if t.dim() > 1 and len(t) == batch.rows]
    largest = max(tensors, key=lambda tensor: tensor.numel(), default=None)
    return largest.float() if largest is not None and largest.dtype is torch.bfloat16 else largest


def _findings(
    rows: Sequence[Mapping[str, Any]], subject: Subject, looking: Iterable[type[DataCheck]]
) -> tuple[Finding, ...]:
    if not rows:
        return ()
    tokenizer: Tokenizer | None = None
    if subject.tokenizer is not None:
        try:
            tokenizer = tokenizer_of(subject.tokenizer)
        except UsageError:
            tokenizer = None
    known = Circumstances(tokenizer, tokenizer.size if tokenizer is not None else None)
    try:
        return look_with(
            [cls(known) for cls in looking], of_object(list(rows), name="data set"), Wanted("data set"), known
        ).findings
    except UsageError:
        return ()


def _undivided(loader: Any) -> list[str]:
    """Whether each of several processes reads the same rows, because the loader's sampler does not divide them."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    kinds = (torch.utils.data.SequentialSampler, torch.utils.data.RandomSampler)
    if count < 2 or type(loader) is not torch.utils.data.DataLoader or type(loader.sampler) not in kinds:
        return []
    if type(loader.batch_sampler) is not torch.utils.data.BatchSampler:
        return []
    return [f"there are {count} processes, and the loader of each reads all rows: no sampler divides them"]


def _shuffles(loader: Any) -> bool | None:
    """Whether the loader shuffles rows, None if its sampler does not show it."""
    sampler = getattr(loader, "sampler", None)
    if sampler is None:
        return None
    if isinstance(sampler, torch.utils.data.SequentialSampler):
        return False
    return True if isinstance(sampler, torch.utils.data.RandomSampler) else None
