"""Facts about labels and targets, as the loss function gets them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor

from steadytrain.capture.looks.token_inputs import SHIFTS, padding_of, place_of_labels, shares_equal, tokens_beside
from steadytrain.survey.label_lag import agreements, label_lag
from steadytrain.survey.pairings import Pairings
from steadytrain.survey.tensor_values import ROWS_LISTED_MAX

if TYPE_CHECKING:
    from steadytrain.survey.call_findings import LossCall
    from steadytrain.survey.calls import Calls
    from steadytrain.survey.input_facts import Batches

ALIGNED = 0.99
HIDDEN_SHARE_MAX = 0.5
PAD_STEPS_SHARE = 0.5
"""Share of the steps that must show padding. A single batch may have full rows only."""

SUSPECT = 8.0
CLASS_LOSSES = ("cross_entropy", "nll_loss")
SUPERVISED_MIN = 8
LEAK_ROWS_MIN, LEAK_ROWS_MAX, LEAK_COLUMNS_MAX, LEAK_SHARE = 64, 2048, 4096, 0.98
LEAK_CLASSES_MIN, LEAK_CLASS_SHARE = 4, 0.02
COPIED_ROWS_MIN = 8

SURE_ERROR, SURE_ERRORS = 0.1, 4.0
"""A ratio of equal neighbours to chance counts if its standard error is at most the first, or if it deviates by so many
errors.
"""


class Labels:
    """Sums over steps. ``last`` is the loss call of the marked step."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self.last: LossCall | None = None
        self.outside = 0
        self._ignored: list[float] = []
        self._rows_without: list[tuple[int, int]] = []
        self._counts: dict[int, int] = {}
        self._halves: list[dict[int, int]] = []
        self._pairs = self._equal = 0
        self._marked, self._own = False, True
        self._agreements: dict[int, dict[tuple[int, int], float]] = {}
        self._pairings = Pairings()
        self._scales: dict[int, float] = {}
        self._columns: list[tuple[Tensor, Tensor]] = []
        self._copied: list[tuple[int, int]] | None = None
        self._looked = 0
        self._pads_looked = 0
        self._pads_seen: list[tuple[int, float, float | None]] = []

    @torch.no_grad()
    def step(self, step: int, calls: Calls, batches: Batches) -> None:
        """Reads the largest loss call at the gate of a surveyed step."""
        if not calls.step_losses:
            return
        call = _telling(calls.step_losses)
        classes = call.name in CLASS_LOSSES and not call.target.is_floating_point()
        rows = batches.rows_of(step)
        self._own = batches.has_own_targets(step)
        if self._own:
            self._agreements[step] = agreements(call, batches.rows)
            self._pairings.saw(step, rows, call.target, _ignored(call) if classes else None)
        if not self._marked:
            self.last = call
        if classes:
            self._classes(call, calls, batches)
        elif call.target.is_floating_point():
            self._values(call)
            self._copied = held_by(batches.numbers, call.target, self._copied) if self._own else self._copied
            if call.target.numel():
                self._scales[step] = float(call.target.float().abs().max())
        self._rows(call, batches)

    def mark(self, step: int) -> None:
        """Marks ``step`` as the one that the row facts describe."""
        self._marked, self._looked = True, step

    def finish(self) -> dict[str, Any]:
        facts = self.facts
        if self._ignored:
            facts["labels_ignored_share_usual"] = sorted(self._ignored)[len(self._ignored) // 2]
            rows = sum(count for _, count in self._rows_without)
            facts["rows_without_labels_share"] = sum(w for w, _ in self._rows_without) / max(1, rows)
        others = sorted(scale for step, scale in self._scales.items() if step != self._looked)
        if self._looked in self._scales and others and others[len(others) // 2] > 0:
            facts["target_scale"] = self._scales[self._looked] / others[len(others) // 2]
        facts |= self._padding() | label_lag(self._agreements, self._looked) | self._pairings.finish(self._looked)
        copied = [{"input": column, "share": 1.0} for _, column in self._copied or ()]
        leaked = copied or self._leaked()
        if leaked is not None:
            facts["labels_leaked"] = leaked
        total = sum(self._counts.values())
        if total:
            facts["label_most_common_share"] = max(self._counts.values()) / total
            shares = [count / total for count in self._counts.values()]
            chance = sum(share**2 for share in shares)
            in_order = sorted_by(self._pairs, self._equal, chance)
            if in_order is not None:
                facts["labels_sorted"] = in_order
            facts["label_mix_change"] = _mix_change(self._halves)
        return facts

    # -- classes ---------------------------------------------------------------------------------------------------

    def _classes(self, call: LossCall, calls: Calls, batches: Batches) -> None:
        labels, facts = call.target, self.facts
        ignored = _ignored(call)
        rows = batches.rows or (labels.shape[0] if labels.dim() else 1)
        share = float(ignored.float().mean()) if labels.numel() else 1.0
        self._ignored.append(share)
        by_row = ignored.reshape(rows, -1) if labels.numel() % max(1, rows) == 0 and rows else ignored.reshape(1, -1)
        without = by_row.all(1).nonzero().flatten().tolist()
        self._rows_without.append((len(without), by_row.shape[0]))
        if not self._marked:
            facts["labels_ignored_share"] = share
            facts["rows_without_labels"] = without[:ROWS_LISTED_MAX]
        used = labels[~ignored]
        classes = call.input.shape[1] if call.input.dim() > 1 else int(call.input.numel())
        facts["classes"] = int(classes)
        if not _are_places(labels, classes):
            facts["uniform_loss"] = math.log(max(1, classes))
        facts["loss_dtype"] = str(call.input.dtype).removeprefix("torch.")
        if used.numel():
            facts["label_largest"] = max(int(used.max()), facts.get("label_largest", 0))
            facts["label_smallest"] = min(int(used.min()), facts.get("label_smallest", 0))
            self.outside += int(((used < 0) | (used >= classes)).sum())
            self._count(used, in_order=labels.numel() == rows)
        if call.input.dim() == 2 and call.input.numel():
            finite = call.input.float()
            facts["log_partition"] = float(finite.logsumexp(-1).mean())
        table = batches.values
        room = sum(len(kept) for _, kept in self._columns) < LEAK_ROWS_MAX
        if self._own and table is not None and room and labels.dim() == 1 and table.shape[0] == labels.shape[0]:
            self._columns.append((table[~ignored].float().cpu(), used.cpu()))
        tokens = tokens_beside(labels, batches.ids, calls.looked_up) if self._own else None
        if tokens is not None:
            self._against_tokens(call, tokens)
            facts["labels_read"] = place_of_labels(labels, tokens, batches.ids, calls.looked_up)

    def _leaked(self) -> list[dict[str, Any]] | None:
        if not self._columns or len({values.shape[1:] for values, _ in self._columns}) > 1:
            return None
        values, labels = (torch.cat(parts) for parts in zip(*self._columns, strict=True))
        return leaked_columns(values, labels, int(self.facts.get("classes", LEAK_CLASSES_MIN)))

    def _count(self, used: Tensor, *, in_order: bool) -> None:
        """Counts classes. ``in_order``: one label a row. Neighbours in a text or a picture are alike anyway."""
        values, counts = torch.unique(used.flatten(), return_counts=True)
        here = dict(zip(values.tolist(), counts.tolist(), strict=True))
        for value, count in here.items():
            self._counts[value] = self._counts.get(value, 0) + count
        if not in_order:
            return
        self._halves.append(here)
        if used.numel() > 1:
            flat = used.flatten()
            self._pairs += flat.numel() - 1
            self._equal += int((flat[1:] == flat[:-1]).sum())

    def _against_tokens(self, call: LossCall, tokens: Tensor) -> None:
        """Compares labels and logits with the model's input ids, position by position."""
        tokens = tokens[:, call.places_cut :]  # the first label belongs to the first place that is left
        batch, length = tokens.shape
        labels = call.target.reshape(-1)
        if batch == 0 or labels.numel() % batch or labels.numel() < SUPERVISED_MIN:
            return
        labels = labels.reshape(batch, -1)
        width = labels.shape[1]
        if not length - SHIFTS <= width <= length or width < 2:
            return
        self._pads(call, tokens, labels)
        used = torch.ne(labels, -100 if call.ignore_index is None else call.ignore_index)
        if not bool(used.any()):
            return
        equal = shares_equal(labels, tokens, used)
        self.facts["labels_equal_inputs"] = equal[0]
        trained = next((shift for shift, share in enumerate(equal) if share > ALIGNED), None)
        if trained is not None:
            self.facts["label_shift_trained"] = trained
        elif float(used.float().mean()) < HIDDEN_SHARE_MAX or equal[0] > HIDDEN_SHARE_MAX:
            return  # hidden or changed words are the targets: a model that copies the others is right
        if call.input.dim() == 2 and call.input.shape[0] == labels.numel() and call.name == "cross_entropy":
            logits = call.input.float().reshape(batch, width, -1)
            costs = {}
            for shift in range(SHIFTS):
                span = min(width, length - shift)
                wanted = tokens[:, shift : shift + span].reshape(-1)
                if bool((wanted < logits.shape[-1]).all()) and span > 0:
                    rows = logits[:, :span].reshape(-1, logits.shape[-1])
                    costs[str(shift)] = float(F.cross_entropy(rows, wanted))
            self.facts["label_shift"] = costs

    def _pads(self, call: LossCall, tokens: Tensor, labels: Tensor) -> None:
        self._pads_looked += 1
        found = padding_of(tokens)
        if found is None:
            return
        pad, trailing = found
        used = torch.ne(labels, -100 if call.ignore_index is None else call.ignore_index)
        supervised = float((labels[used] == pad).float().mean()) if bool(used.any()) else None
        self._pads_seen.append((pad, float(trailing.float().mean()), supervised))

    def _padding(self) -> dict[str, Any]:
        """The token that ends rows in most of the steps. A single step may be chance."""
        counts = Counter(pad for pad, _, _ in self._pads_seen)
        if not counts or counts.most_common(1)[0][1] < PAD_STEPS_SHARE * self._pads_looked:
            return {}
        pad = counts.most_common(1)[0][0]
        _, share, supervised = next(one for one in reversed(self._pads_seen) if one[0] == pad)
        found = {"pad_id": pad, "pad_share": share, "pad_supervised_share": supervised}
        return {name: value for name, value in found.items() if value is not None}

    # -- values ----------------------------------------------------------------------------------------------------

    def _values(self, call: LossCall) -> None:
        facts, target = self.facts, call.target.float()
        if target.numel() == 0:
            return
        low, high = float(target.min()), float(target.max())
        before = facts.get("target_range", [low, high])
        facts["target_range"] = [min(before[0], low), max(before[1], high)]
        ends = call.ends
        if ends is not None:
            facts["output_range"] = list(ends)
            slack = 0.01 * (ends[1] - ends[0]) if math.isfinite(ends[1]) else 1e-6
            out = (target < ends[0] - slack) | (target > ends[1] + slack)
            facts["targets_out_of_reach"] = float(out.float().mean())

    def _rows(self, call: LossCall, batches: Batches) -> None:
        """The loss by batch row, for the marked step."""
        if self._marked:
            return
        losses = row_losses(call, batches.rows)
        if losses is None or len(losses) < 2:
            return
        self.facts["row_loss"] = losses[:ROWS_LISTED_MAX].tolist()
        finite = losses[losses.isfinite()]
        total = float(finite.sum())
        if len(finite) == len(losses) and total > 0:
            self.facts["row_loss_share"] = float(losses.max()) / total
        middle = float(finite.median()) if len(finite) else math.nan
        bad = ~losses.isfinite()
        bad = bad if bool(bad.any()) else losses > SUSPECT * middle
        if int(bad.sum()) <= len(bad) // 2:  # what is in most rows marks none of them
            self.facts["rows_suspect"] = bad.nonzero().flatten().tolist()[:ROWS_LISTED_MAX]


def row_losses(call: LossCall, rows: int | None) -> Tensor | None:
    """The loss of each batch row [rows]; None for uncommon loss functions."""
    value, target = call.input.float(), call.target
    if call.name == "cross_entropy" and not target.is_floating_point():
        inside = (target == call.ignore_index) | ((target >= 0) & (target < value.shape[1]))
        if not bool(inside.all()):
            return None
        each = F.cross_entropy(value, target, ignore_index=call.ignore_index or -100, reduction="none")
    elif call.name == "mse_loss" and value.shape == target.shape:
        each = (value - target.float()).square()
    elif call.name == "binary_cross_entropy_with_logits" and value.shape == target.shape:
        each = F.binary_cross_entropy_with_logits(value, target.float(), reduction="none")
    else:
        return None
    rows = rows or each.shape[0]
    if each.numel() == 0 or each.numel() % rows:
        return None
    return each.reshape(rows, -1).mean(1)


def _telling(losses: Sequence[LossCall]) -> LossCall:
    """The loss call of a step that its facts describe: one without any label that counts (a micro-batch of an
    accumulated step), else the largest."""
    classes = (one for one in losses if one.name in CLASS_LOSSES and not one.target.is_floating_point())
    empty = next((one for one in classes if one.target.numel() and bool(_ignored(one).all())), None)
    return empty or max(losses, key=lambda one: one.input.numel())


def _ignored(call: LossCall) -> Tensor:
    """Which labels do not count, of the shape of the labels."""
    return torch.eq(call.target, -100 if call.ignore_index is None else call.ignore_index)


def held_by(
    inputs: Sequence[Tensor], target: Tensor, known: list[tuple[int, int]] | None
) -> list[tuple[int, int]] | None:
    """The places (number of the input, element of a row) that hold the target of every row, bit for bit.

    ``known``: those of earlier steps, None before the first. Only targets of one number a row are compared, and only
    with rows of more than one: a model that reconstructs its input is given its target by design. Rows in which all
    elements are alike tell nothing.
    """
    rows = target.shape[0] if target.dim() else 0
    if rows < COPIED_ROWS_MIN or target.numel() != rows or torch.unique(target).numel() < rows // 2:
        return known
    found = []
    for number, one in enumerate(inputs):
        columns = one.numel() // rows if one.shape[0] == rows else 0
        if 1 < columns <= LEAK_COLUMNS_MAX and one.device == target.device and one.dtype == target.dtype:
            same = (one.reshape(rows, columns) == target.reshape(rows, 1)).all(0)
            if not bool(same.all()):
                found += [(number, column) for column in same.nonzero().flatten().tolist()]
    return found if known is None else [place for place in known if place in found]


def leaked_columns(values: Tensor, labels: Tensor, classes: int) -> list[dict[str, Any]]:
    """Columns of an input table that predict the label alone, by the most common label of each value.

    Repeated rows count once, because a repeated row predicts its label trivially.
    """
    if values.shape[1] > LEAK_COLUMNS_MAX:
        return []
    once = torch.unique(torch.cat([values, labels[:, None].to(values)], 1), dim=0)
    values, labels = once[:, :-1], once[:, -1].long()
    kinds = int((torch.bincount(labels) > LEAK_CLASS_SHARE * len(labels)).sum())
    if len(labels) < LEAK_ROWS_MIN or kinds < min(LEAK_CLASSES_MIN, classes):
        return []  # with so few rows or classes, chance may separate them
    found = []
    for column in range(values.shape[1]):
        _, places = torch.unique(values[:, column], return_inverse=True)
        count = int(places.max()) + 1
        if count > len(labels) // 4:
            continue  # nearly every row has its own value, which predicts any label
        table = torch.zeros(count, int(labels.max()) + 1)
        table.index_put_((places, labels), torch.ones(len(labels)), accumulate=True)
        share = float(table.max(1).values.sum()) / len(labels)
        if share > LEAK_SHARE:
            found.append({"input": column, "share": share})
    return found


def sorted_by(pairs: int, equal: int, chance: float) -> float | None:
    """How many times more often neighbours are equal than by chance; None if there are too few pairs."""
    if pairs == 0 or not 0 < chance < 1:
        return None
    found = equal / pairs / chance
    error = math.sqrt(chance * (1 - chance) / pairs) / chance
    return found if error <= SURE_ERROR or abs(found - 1) > SURE_ERRORS * error else None


def _are_places(labels: Tensor, classes: int) -> bool:
    """Whether each row's label is its own index, as in contrastive losses. There scores are scaled on purpose, and the
    loss
    does not start at that of a uniform guess.
    """
    return labels.dim() == 1 and labels.numel() == classes > 2 and labels.tolist() == list(range(classes))


def _mix_change(halves: list[dict[int, int]]) -> float | None:
    """The largest change of a label's share from the first to the second half, in standard errors."""
    middle = len(halves) // 2
    if middle == 0:
        return None
    sums: list[dict[int, int]] = []
    for part in (halves[:middle], halves[middle:]):
        total: dict[int, int] = {}
        for one in part:
            for value, count in one.items():
                total[value] = total.get(value, 0) + count
        sums.append(total)
    first, second = (sum(one.values()) for one in sums)
    largest = 0.0
    for value in sums[0].keys() | sums[1].keys():
        a, b = sums[0].get(value, 0) / first, sums[1].get(value, 0) / second
        both = (sums[0].get(value, 0) + sums[1].get(value, 0)) / (first + second)
        error = math.sqrt(max(both * (1 - both), 1e-12) * (1 / first + 1 / second))
        largest = max(largest, abs(a - b) / error)
    return largest
