"""Finds equal inputs that come with different targets: rows of a batch, or of batches far apart.

A cache whose keys collide, a buffer that several rows share, an index that wraps around: the loader returns the right
target with the input of another row. Only inputs of many different numbers are compared; a few discrete features may
well come twice. Targets that are numbers are compared within a batch alone: those of a value function move from step to
step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.looks.loss_graph import LossGraph
from steadytrain.capture.looks.row_keys import is_plain
from steadytrain.capture.step.input_recorder import MicroBatch, tensors_in
from steadytrain.core.torch_private import IS_FUNCTORCH

ROWS_MAX, ROWS_MIN = 1 << 13, 64
"""Rows that are kept, and how many there have to be before anything is reported."""

ELEMENTS_MAX = 1 << 22
"""Elements of one look; of a larger batch the first rows are read."""

VALUES_MIN = 8
"""Different numbers in a row of many: fewer may be a code, a mask or a few categories."""

SAMPLED = 512
TOLERANCE = 0.1
"""Targets that are numbers differ if they lie further apart than this share of their standard deviation."""


class SharedInputs:
    """Serves one stream: the rows of all looks, by a number for each and for the batches in which rows are compared,
    with the least and the largest of their targets."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int]] = []
        self._inputs: set[int] = set()
        self._batches = 0
        self._ends: dict[tuple[int, int], tuple[float, float]] = {}
        self._targets: list[float] = []
        self._works = True

    @torch.no_grad()
    def rows(self, graphs: Sequence[tuple[str, LossGraph, MicroBatch | None]]) -> Iterator[tuple[str, float]]:
        """``other-target:LINE`` is the share of the rows so far whose input came with another target, too, and
        ``different-inputs:LINE`` the number of different inputs among ``compared-inputs:LINE`` rows."""
        line, before = "", len(self._rows)
        for place, graph, call in graphs if self._works and before < ROWS_MAX else ():
            found = _targets_of(graph) if call is not None else None
            if call is None or found is None:
                continue
            targets, is_number = found
            keys = input_keys(call.args, call.kwargs, len(targets))
            if keys is None:
                self._works = False  # the inputs of a model do not change their kind
                return
            line = place
            self._take(keys, targets[: len(keys)], are_numbers=is_number)
        if len(self._rows) > before and len(self._rows) >= ROWS_MIN:
            yield f"other-target:{line}", self._share()
            yield f"different-inputs:{line}", float(len(self._inputs))
            yield f"compared-inputs:{line}", float(len(self._rows))

    def _take(self, keys: Tensor, targets: Tensor, *, are_numbers: bool) -> None:
        self._batches += are_numbers
        for number, target in zip(keys.tolist(), targets.tolist(), strict=True):
            if number == 0 or target != target:
                continue
            key = number, self._batches
            least, most = self._ends.get(key, (target, target))
            self._ends[key] = min(least, target), max(most, target)
            self._rows.append(key)
            self._inputs.add(number)
            self._targets.append(target)

    def _share(self) -> float:
        apart = TOLERANCE * float(torch.tensor(self._targets, dtype=torch.float64).std())
        several = {key for key, (least, most) in self._ends.items() if most - least > apart}
        return sum(key in several for key in self._rows) / len(self._rows)


def _targets_of(graph: LossGraph) -> tuple[Tensor, bool] | None:
    """The targets of the one likelihood or squared error of a loss, one for each row, float64 [rows], and whether they
    are numbers rather than classes."""
    found = [one.targets for one in graph.likelihoods] + list(graph.squared)
    if len(found) != 1 or type(found[0]) is not Tensor or IS_FUNCTORCH(found[0]):
        return None
    targets = found[0].detach()
    if targets.dim() == 0 or targets.numel() != len(targets) or len(targets) < 2:
        return None
    is_number = targets.is_floating_point() and bool(graph.squared)
    targets = targets.reshape(-1).to("cpu", torch.float64)
    if not is_number and torch.unique(targets).numel() == len(targets):  # places in the batch, as of a contrastive loss
        return None
    return targets, is_number


def input_keys(args: Any, kwargs: Any, rows: int) -> Tensor | None:
    """A number for each of the first rows of a call, equal for equal rows, int64 on the CPU; 0 for rows of one value.

    All tensors of the call count. None if one of them has other rows, or if none holds many different numbers.
    """
    given = [one.detach() for one in tensors_in((args, kwargs)) if one.dim() > 0]
    if not given or any(not is_plain(one) or not one.numel() or len(one) != rows for one in given):
        return None
    columns = max(1, sum(one.numel() // rows for one in given))
    read = min(rows, ELEMENTS_MAX // columns)
    wide = [one[:read].reshape(read, -1) for one in given]
    if read < 2 or not any(_has_many_values(one) for one in wide):
        return None
    keys, varies = torch.zeros(read, dtype=torch.int64), torch.zeros(read, dtype=torch.bool)
    for place, one in enumerate(wide):
        bits = one.float().contiguous().view(torch.int32).long() if one.is_floating_point() else one.long()
        keys += (bits * _weights(one.shape[1], place, one.device)).sum(-1).cpu()
        varies |= (one != one[:, :1]).any(-1).cpu()
    return torch.where(varies, torch.where(keys == 0, 1, keys), 0)


def _has_many_values(rows: Tensor) -> bool:
    if not rows.is_floating_point() or rows.shape[1] < VALUES_MIN:
        return False
    counts = sorted(int(torch.unique(row[:SAMPLED]).numel()) for row in rows[:VALUES_MIN].cpu())
    return counts[len(counts) // 2] >= VALUES_MIN


@lru_cache(maxsize=8)
def _weights(columns: int, place: int, device: torch.device) -> Tensor:
    """An odd number for each column, drawn apart from the generators of the script."""
    own = torch.Generator().manual_seed(2_654_435_761 + place)
    return (torch.randint(-(1 << 62), 1 << 62, (columns,), generator=own) | 1).to(device)
