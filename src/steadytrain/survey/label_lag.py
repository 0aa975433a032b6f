"""Labels that moved against their inputs at the onset, known from the predictions of a model that had learned them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from steadytrain.survey.call_findings import LossCall

PLACES = (-2, -1, 1, 2)
LABELS_MIN, LABELS_MAX = 24, 1 << 20
BEFORE_MIN, BEFORE_STEPS = 2, 8
LEARNED, LOST = 0.6, 0.5
"""Agreement with the labels of their own place before the onset, at least, and from it on as a share of that, at most:
at another place at least the remaining share of it returns."""

RETURNS = 0.85


def agreements(call: LossCall, rows: int | None) -> dict[tuple[int, int], float]:
    """How well predictions match labels some places further, by (dimension, places); empty where they do not compare.

    Classes match by the share that is right, values by the share of their variance that is explained. Dimension 0 is
    that of rows, 1 that of places in a row.
    """
    found = _pair(call, rows)
    if found is None:
        return {}
    predicted, target = found
    same = {(0, 0): _agreement(predicted, target)}
    for dimension in range(min(2, target.dim())):
        size = target.shape[dimension]
        for places in PLACES:
            if size > 2 * abs(places):
                kept = size - abs(places)
                ahead = target.narrow(dimension, max(0, places), kept)
                same[dimension, places] = _agreement(predicted.narrow(dimension, max(0, -places), kept), ahead)
    return same


def label_lag(seen: Mapping[int, Mapping[tuple[int, int], float]], onset: int) -> dict[str, Any]:
    """The fact ``label_lag``: predictions matched the labels before ``onset``; there they match those beside them."""
    earlier = [one for step, one in seen.items() if onset - BEFORE_STEPS <= step < onset and one]
    here = seen.get(onset)
    if here is None or not here or len(earlier) < BEFORE_MIN:
        return {}
    before = min(one[0, 0] for one in earlier)
    (dimension, places), best = max(here.items(), key=lambda one: one[1])
    if not places or before < LEARNED or here[0, 0] > LOST * before or best < RETURNS * before:
        return {}
    told = {"places": places, "dimension": dimension, "aligned": best, "own": here[0, 0], "before": before}
    return {"label_lag": told}


def _pair(call: LossCall, rows: int | None) -> tuple[Tensor, Tensor] | None:
    """Predictions and labels of one shape, [rows] or [rows, places]; None if they do not compare."""
    value, target = call.input.detach(), call.target.detach()
    if not LABELS_MIN <= target.numel() <= LABELS_MAX or not rows:
        return None
    if target.is_floating_point():
        if value.shape != target.shape or call.name not in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
            return None
    else:
        if call.name not in ("cross_entropy", "nll_loss") or value.dim() < 2 or value.dim() != target.dim() + 1:
            return None
        value = value.argmax(1)
    if target.shape[0] != rows and target.numel() % rows == 0:
        value, target = value.reshape(rows, -1), target.reshape(rows, -1)
    return (value, target) if target.dim() <= 2 else (value.flatten(1), target.flatten(1))


def _agreement(predicted: Tensor, target: Tensor) -> float:
    if not target.is_floating_point():
        common = float(torch.bincount(target.flatten().clamp(min=0)).max()) / target.numel()
        share = float((predicted == target).float().mean())
        return max(0.0, (share - common) / (1 - common)) if common < 1 else 0.0
    spread = float((target - target.mean()).square().sum())
    return max(0.0, 1 - float((predicted - target).square().sum()) / spread) if spread > 0 else 0.0
