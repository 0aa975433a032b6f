"""Rows that come again with another target: the pairing of inputs and targets is lost, as after two shuffles."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

ROWS_MAX = 1 << 15
"""More rows than this are not remembered: 2 MB."""

CHANGED_MIN, CHANGED_SHARE, BEFORE_SHARE = 4, 0.25, 0.25
"""From the onset on at least so many known rows, and this share of them, have another target. Before it at most this
share of that share had: targets that a model computes change all the time."""

EXCHANGED_MIN = 2
"""Of targets that are numbers or sequences so many must be those of other rows. A teacher's numbers are always new, and
so are the labels of words that were masked at random."""

AGAIN_MIN, AGAIN_SHARE = 3, 0.5
"""So many batches, and this share of them, have the rows of the batch before in its order, with other targets: what was
kept of the batches lies in one memory."""

PLACES_MIN = 8
"""So many labels that are all different and in a row without a gap number the places of the batch. Chosen."""

Seen = tuple[int, int]
"""A step and the row in its batch."""


class Pairings:
    """Remembers the target of each surveyed row of inputs."""

    def __init__(self) -> None:
        self._target_of: dict[bytes, tuple[bytes, Seen]] = {}
        self._inputs_of: dict[bytes, bytes] = {}
        self._many_values = False
        self._steps: dict[int, list[tuple[bool, bool, Seen, Seen]]] = {}
        self._batches: list[tuple[int, bool]] = []
        """Each step with one batch of inputs, and whether they are those of the step before, with other targets."""

        self._last: tuple[int, Sequence[bytes], list[bytes]] | None = None
        self._torn: list[int] = []
        """Steps with equal rows of different targets in one batch: rows share an input, and no pairing was lost."""

    @torch.no_grad()
    def saw(self, step: int, rows: Sequence[bytes], target: Tensor, ignored: Tensor | None = None) -> None:
        """The loss of ``step`` got ``target`` for inputs with these digests, in order. Labels that are ``ignored`` are
        none: a row has another target only if the same places have other labels, and one without labels has none."""
        if len(rows) < 2 or target.numel() % len(rows) or not target.numel() or target.requires_grad:
            return
        if len(self._target_of) > ROWS_MAX:
            return
        flat = target.detach().cpu().contiguous().reshape(len(rows), -1)
        if _are_places(flat):
            return
        if len(set(rows)) < len(rows):
            if len({(row, _digest(one)) for row, one in zip(rows, flat, strict=True)}) > len(set(rows)):
                self._torn.append(step)
            return
        self._compare(step, rows, sorted(map(_digest, flat)))
        self._many_values = target.is_floating_point() or flat.shape[1] > 1
        left_out = None if ignored is None else ignored.detach().cpu().contiguous().reshape(len(rows), -1)
        for place, (row, one) in enumerate(zip(rows, flat, strict=True)):
            if left_out is not None:
                if bool(left_out[place].all()):
                    continue
                row += _digest(left_out[place])
            told = _digest(one)
            known = self._target_of.get(row)
            if known is not None:
                changed = known[0] != told
                exchanged = changed and self._inputs_of.get(told, row) != row
                self._steps.setdefault(step, []).append((changed, exchanged, (step, place), known[1]))
            self._target_of[row] = (told, (step, place))
            self._inputs_of.setdefault(told, row)

    def _compare(self, step: int, rows: Sequence[bytes], targets: list[bytes]) -> None:
        """Note whether the batch has the inputs of the step before, with other targets in any order."""
        before, self._last = self._last, (step, list(rows), targets)
        if before is not None and step > before[0]:
            self._batches.append((step, before[1] == self._last[1] and before[2] != targets))

    def finish(self, onset: int) -> dict[str, Any]:
        """The fact ``targets_exchanged``, or ``inputs_repeated`` where whole batches come again."""
        if any(step < onset or onset <= 1 for step in self._torn):
            return {}
        batches = [again for step, again in self._batches if step >= onset]
        if sum(batches) >= max(AGAIN_MIN, AGAIN_SHARE * len(batches)):
            return {"inputs_repeated": {"batches": sum(batches), "of": len(batches)}}
        since = [one for step, seen in self._steps.items() if step >= onset for one in seen]
        before = [one for step, seen in self._steps.items() if step < onset for one in seen]
        changed = [one for one in since if one[0]]
        share = len(changed) / len(since) if since else 0.0
        share_before = sum(one[0] for one in before) / len(before) if before else 0.0
        if len(changed) < CHANGED_MIN or share < CHANGED_SHARE or share_before > BEFORE_SHARE * share:
            return {}
        if self._many_values and sum(one[1] for one in changed) < EXCHANGED_MIN:
            return {}
        now, then = changed[0][2], changed[0][3]
        return {
            "targets_exchanged": {
                "rows": len(since),
                "changed": len(changed),
                "now": list(now),
                "then": list(then),
            }
        }


def _digest(values: Tensor) -> bytes:
    return hashlib.blake2b(values.view(torch.uint8).numpy().tobytes(), digest_size=16).digest()


def _are_places(flat: Tensor) -> bool:
    """Whether the labels [rows, 1] number the rows of the batch, in any order, as those of contrastive losses do."""
    if flat.shape[1] != 1 or flat.is_floating_point() or len(flat) < PLACES_MIN:
        return False
    numbers = flat[:, 0].sort().values
    return torch.equal(numbers, torch.arange(len(flat), dtype=numbers.dtype) + numbers[0])
