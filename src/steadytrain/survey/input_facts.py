"""Facts about the model's inputs: non-finite values, scale outliers, repeats, drift."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.step.input_recorder import named_tensors_in
from steadytrain.experiments.facts import of_loader
from steadytrain.survey.missing_codes import missing_codes
from steadytrain.survey.tensor_values import ROWS_LISTED_MAX
from steadytrain.tracing.input_values import same_inputs

ROW_DIGESTS_MAX = 1 << 16

ROW_VALUES_MIN, FLOAT_VALUES = 8, 4
"""Two samples with so many equal values are one; a real number counts for several whole ones."""

SCALE_FLOOR = 1e-12
SHIFT_STEPS_MIN = 2
SPREAD_FLOOR = 1e-3
"""Minimum spread, of a token share or in units of the input. An input that never varied may vary by this much."""

HISTOGRAM_BINS = 64
TOKENS_MAX = 1 << 18
NUMBERS_MAX, LOADED_MAX = 4, 16
"""Larger ids are not counted as tokens. So many counts take 2 MB a step."""


@dataclass
class _Rows:
    """The rows of a step: a digest of each, whether it is one value throughout, and the values in one."""

    step: int = -1
    digests: list[bytes] = field(default_factory=list)
    blank: list[bool] = field(default_factory=list)
    values: int = 0


class Batches:
    """Summarises the inputs of the surveyed steps without keeping their tensors."""

    def __init__(self) -> None:
        self.rows: int | None = None
        self.ids: list[Tensor] = []
        self.numbers: list[Tensor] = []
        """The first floating-point inputs of the step, of two dimensions or more."""
        self.values: Tensor | None = None
        self._step = 0
        self._marked: int | None = None
        self._scales: dict[int, float] = {}
        self._lengths: dict[int, int] = {}
        self._statistics: dict[int, Tensor] = {}
        self._digests: dict[int, str] = {}
        self._size = (False, -1)
        """Of the call in this step that stands for its batch: whether gradients were enabled, and its elements."""
        self._tokens: dict[int, Tensor] = {}
        self._row_digests: dict[bytes, int] = {}
        self._rows_of: dict[int, list[bytes]] = {}
        self._whole = _Rows()
        self._rows_taken = self._others_of = -1
        self._rows_repeated = self._rows_seen = 0
        self._nonfinite: list[dict[str, Any]] = []
        self._loaded: list[tuple[str, Tensor]] = []
        self._codes: dict[int, list[dict[str, Any]]] = {}
        self.facts: dict[str, Any] = {}

    def fetched(self, dataset: int, batch: Any) -> None:
        """Keeps what a loader gave until the model is called: the model's inputs leave out the targets."""
        self._loaded = [*self._loaded, *named_tensors_in(batch)][-LOADED_MAX:]

    def given(self, step: int, own: tuple[Any, Any], given: tuple[Any, Any]) -> None:
        """As :meth:`called` for a model that the script called with ``own``, and that got the recorded inputs
        ``given``: if these are others, the targets that the script computes do not belong to them."""
        if given is not own and not same_inputs(own, given):
            self._others_of = step
        self.called(step, *given)

    def has_own_targets(self, step: int) -> bool:
        """Whether the targets of ``step`` belong to its inputs."""
        return self._others_of != step

    def called(self, step: int, args: Any, kwargs: Any) -> None:
        """Reads the inputs of a model call in ``step``."""
        learns = torch.is_grad_enabled()
        with torch.no_grad():
            self._called(step, learns, args, kwargs)

    def _called(self, step: int, learns: bool, args: Any, kwargs: Any) -> None:
        first = step != self._step
        self._step = step
        inputs = list(named_tensors(args, kwargs))
        if not inputs:
            return
        lead = next((value for _, value in inputs if value.dim() > 0), None)
        self.rows = int(lead.shape[0]) if lead is not None else None
        if first:
            self.ids, self.values = [], None
        self.ids += [v for _, v in inputs if v.dim() == 2 and not v.is_floating_point() and v.dtype != torch.bool]
        # If several modules are called in turn, only the first gets the batch itself.
        values = next((v for _, v in inputs if v.dim() == 2 and v.is_floating_point()), None)
        self.values = values if first else self.values
        if first:
            self.numbers = [v.detach() for _, v in inputs if v.is_floating_point() and v.dim() > 1][:NUMBERS_MAX]
        computed = {name for name, value in _as_given(args, kwargs) if value.grad_fn is not None}
        if first and "input_scale" not in self.facts:
            features = next((v for n, v in inputs if v.is_floating_point() and v.dim() > 1 and n not in computed), None)
            self.facts |= _scale(features) if features is not None and features.numel() else {}
        scales, parts = [], []
        for name, value in inputs:
            if value.numel() == 0:
                continue
            if value.is_floating_point() and name in computed:
                continue  # what an earlier model call of the step computed is no input of the script
            if value.is_floating_point():
                bad = ~value.isfinite()
                self._note_nonfinite(step, name, bad)
                good = value[~bad].float()
                if good.numel():
                    scales.append(float(good.abs().max()))
                    parts.append(torch.stack([good.mean(), good.std(correction=0), good.abs().max().log1p()]))
            elif value.dtype != torch.bool:
                bins = torch.bincount((value.flatten() % HISTOGRAM_BINS), minlength=HISTOGRAM_BINS).float()
                parts.append(bins / bins.sum())
        if first:
            self._find_codes(step, inputs, computed)
            loaded, self._loaded = self._loaded, []
            for name, value in loaded:
                if value.is_floating_point() and value.numel():
                    self._note_nonfinite(step, of_loader(name), ~value.isfinite())
            self._lengths[step] = max((max(value.shape[1:]) for _, value in inputs if value.dim() > 1), default=0)
        if scales:
            self._scales[step] = max(*scales, 0.0 if first else self._scales.get(step, 0.0))
        if first and self.ids and bool(((self.ids[0] >= 0) & (self.ids[0] < TOKENS_MAX)).all()):
            self._tokens[step] = torch.bincount(self.ids[0].flatten().cpu())
        if parts and first:
            self._statistics[step] = torch.cat(parts)
        if first:
            self._size = (False, -1)
            self._count_rows(_row_parts([value for _, value in inputs]))
        self._follow_rows([value for name, value in inputs if name not in computed])
        # An agent acts on single observations, and an evaluation on a fixed set, between two batches that train.
        size = (learns, sum(value.numel() for _, value in inputs))
        if size > self._size:
            self._size = size
            self._digests[step] = hashlib.sha256(b"".join(_bytes(value) for _, value in inputs)).hexdigest()

    def _find_codes(self, step: int, inputs: list[tuple[str, Tensor]], computed: set[str]) -> None:
        """Codes for missing values in the inputs of a step, and in what its loader gave."""
        given = [(f"input {name}", value) for name, value in inputs if name not in computed]
        for name, value in (*given, *((of_loader(name), value) for name, value in self._loaded)):
            for code in missing_codes(value):
                found = {"step": step, "input": name, "value": code, "places": int((value == code).sum())}
                self._codes.setdefault(step, []).append(found)

    def _note_nonfinite(self, step: int, name: str, bad: Tensor) -> None:
        """``bad`` marks the values [rows, ...] of a tensor that are NaN or Inf. The same rows of another one are not
        noted again: a loader's input is the model's too."""
        if not bool(bad.any()) or len(self._nonfinite) >= ROWS_LISTED_MAX:
            return
        rows = bad.reshape(bad.shape[0], -1).any(1).nonzero().flatten() if bad.dim() else torch.zeros(1)
        found = {"rows": rows.tolist()[:ROWS_LISTED_MAX], "count": int(bad.sum())}
        if not any(one["step"] == step and found.items() <= one.items() for one in self._nonfinite):
            self._nonfinite.append({"step": step, "input": name, **found})

    def rows_of(self, step: int) -> list[bytes]:
        """Digests of the rows of all inputs of ``step`` so far, in order.

        Empty if they were not counted, or if a row has so few values that another sample may have the same. Calls of a
        model after this, such as those of the next micro-batch, add nothing to the step's rows.
        """
        whole, self._whole = self._whole, _Rows()
        self._rows_taken = step
        if whole.step != step or whole.values < ROW_VALUES_MIN:
            return []
        # A row of one value throughout, such as an image that was erased, is equal to others without being them.
        return [
            one + f"{step}:{place}".encode() if blank else one
            for place, (one, blank) in enumerate(zip(whole.digests, whole.blank, strict=True))
        ]

    def _follow_rows(self, inputs: list[Tensor]) -> None:
        """Adds what a call was given to the rows of the step."""
        if self._rows_taken == self._step or len(self._row_digests) > ROW_DIGESTS_MAX:
            return
        if self._whole.step != self._step:
            self._whole = _Rows(self._step)
        whole = self._whole
        for value in inputs:
            if value.dim() == 0 or (whole.digests and value.shape[0] != len(whole.digests)) or not value.numel():
                continue
            rows = _bytes_of_rows(value)
            earlier = whole.digests or [b""] * len(rows)
            whole.digests = [
                hashlib.blake2b(before + row, digest_size=16).digest()
                for before, row in zip(earlier, rows, strict=True)
            ]
            one_value = (value.reshape(len(rows), -1) == value.reshape(len(rows), -1)[:, :1]).all(1).tolist()
            whole.blank = [now and before for now, before in zip(one_value, whole.blank or one_value, strict=True)]
            whole.values += value.numel() // value.shape[0] * (FLOAT_VALUES if value.is_floating_point() else 1)

    def mark(self, step: int) -> None:
        """Marks ``step`` as the one that the batch facts describe."""
        self._marked = step

    def finish(self) -> dict[str, Any]:
        facts = self.facts
        looked = self._marked if self._marked in self._digests else self._step
        harmless = self._harmless()
        facts["batch_nonfinite"] = [one for one in self._nonfinite if one["input"] not in harmless]
        facts["missing_codes"] = self._codes.get(looked) or next(iter(self._codes.values()), [])
        others = sorted(scale for step, scale in self._scales.items() if step < looked)
        if looked in self._scales and others:
            facts["batch_scale"] = self._scales[looked] / max(SCALE_FLOOR, others[len(others) // 2])
        facts |= self._length(looked)
        digests = list(self._digests.values())
        if len(digests) > 1:
            facts["repeated_batches"] = 1 - len(set(digests)) / len(digests)
            facts["repeated_after"] = _shortest_return(self._digests)
        if self._rows_seen:
            facts["repeated_rows"] = self._rows_repeated / self._rows_seen
            facts["surveyed_rows"] = self._rows_seen
        facts |= self._copies(looked)
        before = [s for step, s in self._statistics.items() if step < looked]
        if len(before) > SHIFT_STEPS_MIN and looked in self._statistics:
            facts["batch_distance"] = _distance(before, [self._statistics[looked]])
            after = [s for step, s in self._statistics.items() if step >= looked]
            if len(after) > SHIFT_STEPS_MIN:
                facts["data_shift"] = _distance(before, after)
        older, newer = ([n for step, n in self._tokens.items() if (step < looked) == past] for past in (True, False))
        if len(older) > SHIFT_STEPS_MIN and len(newer) > SHIFT_STEPS_MIN:
            facts["token_overlap"] = _overlap(older, newer)
            facts["token_offset"] = _offset(older, newer)
        return facts

    def _harmless(self) -> set[str]:
        """Inputs that held NaN or Inf before the marked step as well: the script can digest them, as values that are
        missing and left out of the loss."""
        if self._marked not in self._digests:
            return set()
        return {one["input"] for one in self._nonfinite if one["step"] < self._marked}

    def _length(self, looked: int) -> dict[str, Any]:
        """How long the rows of the batch are against those before it, along their longest dimension."""
        before = sorted(length for step, length in self._lengths.items() if step < looked)
        usual = before[len(before) // 2] if len(before) > SHIFT_STEPS_MIN else 0
        return {"batch_length": self._lengths[looked] / usual} if usual and looked in self._lengths else {}

    def _copies(self, looked: int) -> dict[str, Any]:
        """The share of rows that are copies of others: from the onset on, and in as many steps before it."""
        since = [rows for step, rows in self._rows_of.items() if step >= looked]
        before = [rows for step, rows in self._rows_of.items() if step < looked][-len(since) :]
        if min(len(since), len(before)) <= SHIFT_STEPS_MIN:
            return {}
        facts = {}
        for name, steps in (("repeated_rows_before", before), ("repeated_rows_since", since)):
            rows = [row for step in steps for row in step]
            facts[name] = 1 - len(set(rows)) / len(rows) if rows else 0.0
        return facts

    def _count_rows(self, parts: Sequence[Tensor]) -> None:
        if not parts or len(self._row_digests) > ROW_DIGESTS_MAX:
            return
        for row in zip(*map(_bytes_of_rows, parts), strict=True):
            key = hashlib.blake2b(b"".join(row), digest_size=16).digest()
            self._rows_seen += 1
            self._rows_repeated += key in self._row_digests
            self._row_digests[key] = self._step
            self._rows_of.setdefault(self._step, []).append(key)


def _row_parts(inputs: Sequence[Tensor]) -> list[Tensor]:
    """What makes a row: the first input; all of as many rows where that is one value a row, as the id of a user."""
    first = inputs[0]
    if first.dim() == 0:
        return []
    single = first.numel() == first.shape[0]
    return [one for one in inputs if one.dim() and one.shape[0] == first.shape[0]] if single else [first]


def _distance(before: list[Tensor], after: list[Tensor]) -> float | None:
    """The distance of the median of ``after`` from the mean of ``before``, in standard deviations of single batches.

    The mean over the most distant eighth of the statistics. The median keeps one odd batch from counting as a shift.
    """
    if len({one.shape for one in [*before, *after]}) > 1:
        return None
    known, now = torch.stack(before).double(), torch.stack(after).double().median(0).values
    spread = known.std(0) + SPREAD_FLOOR + 1e-3 * known.mean(0).abs()
    away = (now - known.mean(0)).abs() / spread
    found = float(away.sort().values[-max(1, len(away) // 8) :].mean())
    return found if math.isfinite(found) else None


def _shortest_return(digests: dict[int, str]) -> int | None:
    """The smallest number of steps after which a batch repeated."""
    last: dict[str, int] = {}
    returns = []
    for step, digest in digests.items():
        if digest in last:
            returns.append(step - last[digest])
        last[digest] = step
    return min(returns, default=None)


def _overlap(before: list[Tensor], after: list[Tensor]) -> list[float]:
    """The shared mass of the id frequencies: id by id, and with both sorted by frequency."""
    longest = max(len(one) for one in [*before, *after])
    shares = []
    for part in (before, after):
        total = torch.zeros(longest, dtype=torch.float64)
        for one in part:
            total[: len(one)] += one
        shares.append(total / total.sum().clamp(min=1))
    old, new = shares
    by_rank = torch.minimum(old.sort(descending=True).values, new.sort(descending=True).values)
    return [float(torch.minimum(old, new).sum()), float(by_rank.sum())]


def named_tensors(args: Any, kwargs: Any) -> Iterator[tuple[str, Tensor]]:
    yield from ((name, tensor.detach()) for name, tensor in _as_given(args, kwargs))


def feature_dimension(value: Tensor) -> int:
    """The dimension of the features of an input: the channels of images, else the last."""
    return 1 if value.dim() > 3 else value.dim() - 1


def _scale(value: Tensor) -> dict[str, Any]:
    """``input_scale`` of an input [rows, ..., features]; empty if it is not finite."""
    size = value.float().movedim(feature_dimension(value), -1).flatten(0, -2).pow(2).mean(0).sqrt()
    if not bool(size.isfinite().all()):
        return {}
    largest, feature = size.max(0)
    told = {"largest": float(largest), "middle": float(size.median()), "feature": int(feature)}
    return {"input_scale": {**told, "features": size.numel()}}


def _as_given(args: Any, kwargs: Any) -> Iterator[tuple[str, Tensor]]:
    for place, value in [*((str(at), value) for at, value in enumerate(args)), *dict(kwargs).items()]:
        yield from named_tensors_in(value, place)


def _bytes(value: Tensor) -> bytes:
    plain = value.detach().cpu().contiguous()
    return plain.flatten().view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def _bytes_of_rows(value: Tensor) -> list[bytes]:
    """The bytes of each row of ``value`` [rows, ...]."""
    plain, rows = _bytes(value), value.shape[0]
    size = len(plain) // max(1, rows)
    return [plain[at * size : (at + 1) * size] for at in range(rows)]


OFFSETS_MAX, OFFSET_SHARE, OFFSET_TOKENS_MIN = 256, 0.85, 16


def _offset(older: list[Tensor], newer: list[Tensor]) -> list[float] | None:
    """``[offset, share]``: the ids of ``newer`` less this number have the frequencies of ``older``, up to the share.

    None if they match as they are, or with no offset. A few tokens alone match by chance.
    """
    length = max(len(one) for one in (*older, *newer))
    before, after = (
        torch.stack([torch.nn.functional.pad(one, (0, length - len(one))) for one in part]).sum(0).double()
        for part in (older, newer)
    )
    before, after = before / before.sum(), after / after.sum()
    if int((before > 0).sum()) < OFFSET_TOKENS_MIN:
        return None
    shares = {}
    for offset in range(-min(OFFSETS_MAX, length - 1), min(OFFSETS_MAX, length - 1) + 1):
        moved = after[max(0, offset) : length + min(0, offset)]
        shares[offset] = float(torch.minimum(before[max(0, -offset) : length - max(0, offset)], moved).sum())
    best = max(shares, key=lambda offset: shares[offset])
    return [best, shares[best]] if best and shares[best] > OFFSET_SHARE > shares[0] else None
