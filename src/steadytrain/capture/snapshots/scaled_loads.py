"""Finds loaded weights that are those of the model times a number: an average whose coefficients do not add up to one.

An average of models that were trained on from one model lies near it. If its coefficients add up to less than one,
because they were divided by a total over all members and some took no part, each load also shrinks the weights. A
number that is the same in each load is a choice (weights that are shrunk on purpose) and is not reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.model_discovery import named_tensors
from steadytrain.capture.snapshots.replaced_weights import sampled
from steadytrain.capture.step.script_frames import user_frames

LOADS_MAX, TENSORS_MAX, SAMPLED_MAX = 128, 64, 1024
ELEMENTS_MIN, TENSORS_MIN = 32, 3
SHARE_MIN, SHARE_MAX = 0.2, 0.98
PURE = 0.5
"""The part of the change that is no scaling, at most this share of the scaling."""

APART_MAX = 0.4
"""How far the factor of one tensor may lie from that of all, as a share of the scaling."""

LOADS_MIN, SPREAD_MIN = 3, 0.01


class ScaledLoads:
    """Serves all models of a run."""

    def __init__(self) -> None:
        self._compared = 0
        self._place = ""
        self._shares: list[float] = []
        self._told = False

    @torch.no_grad()
    def load_begins(self, module: nn.Module, state: Any) -> None:
        """``module`` is about to load ``state``. Reads the device once, for the first loads of a run."""
        if not isinstance(state, Mapping) or self._compared >= LOADS_MAX:
            return
        self._compared += 1
        share = _share(list(_pairs(module, state)))
        if share is None:
            return
        self._shares.append(share)
        frames = user_frames()
        self._place = frames[0].place if frames else type(module).__name__

    def rows(self) -> Iterator[tuple[str, float]]:
        """``scaled-load:LINE`` is the median factor of the first loads that scale all weights, and
        ``scaled-loads:LINE`` their number. Once a run: each round may have optimizers of its own."""
        if self._told or len(self._shares) < LOADS_MIN or max(self._shares) - min(self._shares) < SPREAD_MIN:
            return
        self._told = True
        yield f"scaled-load:{self._place}", sorted(self._shares)[len(self._shares) // 2]
        yield f"scaled-loads:{self._place}", float(len(self._shares))


def _pairs(module: nn.Module, state: Mapping[str, Any]) -> Iterator[tuple[Tensor, Tensor]]:
    """Samples of what the model has and of what it gets, for its larger tensors."""
    for name, one in islice(named_tensors(module), TENSORS_MAX):
        given = state.get(name)
        if not isinstance(given, Tensor) or given.shape != one.shape or one.numel() < ELEMENTS_MIN:
            continue
        before, after = sampled(one, SAMPLED_MAX), sampled(given, SAMPLED_MAX)
        if before is None or after is None or before.device != after.device or before.data_ptr() == after.data_ptr():
            continue
        yield before.float(), after.float()


def _share(pairs: list[tuple[Tensor, Tensor]]) -> float | None:
    """The factor by which the weights are scaled; None if the change is another one."""
    if len(pairs) < TENSORS_MIN:
        return None
    device = pairs[0][0].device
    sums = torch.stack(
        [torch.stack([b @ b, b @ a, a @ a]).to(device) for b, a in pairs]  # before, both, after
    ).tolist()
    whole = [sum(column) for column in zip(*sums, strict=True)]
    if not whole[0] > 0.0:
        return None
    share = whole[1] / whole[0]
    if not SHARE_MIN <= share <= SHARE_MAX:
        return None
    scaling = 1.0 - share
    if whole[2] - share * share * whole[0] > (PURE * scaling) ** 2 * whole[0]:
        return None
    near = [abs(both / before - share) <= APART_MAX * scaling for before, both, _ in sums if before > 0.0]
    return share if sum(near) >= 0.8 * len(near) else None
