"""Compares the scale of the inputs that a model is evaluated with, with that of the inputs that it is trained on.

Channels of images and of volumes, and features of tables and series, are compared one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.step.input_recorder import tensors_in
from steadytrain.core.torch_private import IS_FUNCTORCH

SPREADS_RATIO, MEANS_AWAY = 3.0, 3.0
"""A channel is on another scale if its spread is so many times as large or as small, or its mean so many spreads of the
training inputs away."""

CHANNELS_SHARE = 0.5
FEATURES_MIN, CHANNELS_MAX, VALUES_MIN = 3, 4096, 16
"""Features of a table: of one or two, a range for a plot may lie far outside of the training data."""

BELOW_ZERO, SHIFTED, SHRUNK = -0.25, 0.5, 1.5
"""Images between 0 and 1 beside training images that reach below zero: how far, and how far the means are apart, in
training spreads, and the spreads in ratio; noise that is added in training moves no mean."""


@dataclass(frozen=True)
class Moments:
    """Of one input: mean, standard deviation, least and largest value of each channel, [4, channels]."""

    values: Tensor
    dimensions: int

    @property
    def of_images(self) -> bool:
        return self.dimensions >= 4


@torch.no_grad()
def moments_of(args: Any, kwargs: Any) -> Moments | None:
    """The moments of the only tensor of a call; None where there are several, or it holds ids."""
    given = list(tensors_in((args, kwargs)))
    one = given[0] if len(given) == 1 else None
    if one is None or type(one) is not Tensor or one.is_meta or one.layout != torch.strided or IS_FUNCTORCH(one):
        return None
    if one.is_nested or not (one.is_floating_point() or one.dtype == torch.uint8) or one.dim() not in (2, 3, 4, 5):
        return None
    channels = one.shape[1 if one.dim() >= 4 else -1]
    if not one.numel() or one.numel() // channels < VALUES_MIN or channels > CHANNELS_MAX:
        return None
    if one.dim() < 4 and channels < FEATURES_MIN:
        return None
    table = one.detach().movedim(1 if one.dim() >= 4 else -1, -1).reshape(-1, channels).float()
    spread, mean = torch.std_mean(table, 0)
    return Moments(torch.stack([mean, spread, *torch.aminmax(table, dim=0)]), one.dim())


def off_scale(evaluated: Moments, trained: list[Moments]) -> float:
    """The share of the channels that are on another scale than in training; NaN if that cannot be told."""
    known = [one.values for one in trained if one.dimensions == evaluated.dimensions]
    known = [one.double().cpu() for one in known if one.shape == evaluated.values.shape]
    if not known:
        return float("nan")
    there = torch.stack(known)
    mean, least = there[:, 0].mean(0), there[:, 2].amin(0)
    spread = (there[:, 1].square().mean(0) + there[:, 0].var(0, correction=0)).sqrt()
    own_mean, own_spread, own_least, own_most = evaluated.values.double().cpu()
    moving = spread > 0
    if not bool(moving.double().mean() >= CHANNELS_SHARE) or not bool(torch.isfinite(own_spread).all()):
        return float("nan")
    ratio = own_spread / spread.clamp(min=1e-30)
    other = (ratio > SPREADS_RATIO) & moving
    away = (own_mean - mean).abs() > MEANS_AWAY * spread
    if evaluated.of_images:
        unit = (own_least >= 0.0) & (own_most <= 1.0) & (least < BELOW_ZERO) & (ratio < 1 / SHRUNK)
        away |= unit & ((own_mean - mean).abs() > SHIFTED * spread)
        # A feature may drift with time, and a part of a drifting series is narrower than the whole. A channel does not.
        other |= away | ((ratio < 1 / SPREADS_RATIO) & (own_spread > 0) & moving)
    return float(other[moving].double().mean())
