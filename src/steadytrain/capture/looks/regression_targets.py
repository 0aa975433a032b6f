"""Reads targets of a squared error: what their mean would cost, and whether they are noise that the model never saw, or
noise of the wrong distribution.

A model that predicts the noise in its input (a diffusion model) must be given that noise: drawn twice, the target has
nothing to do with the input.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.looks.graph_nodes import plain_tensor
from steadytrain.capture.looks.shared_times import SharedTimes
from steadytrain.capture.looks.visible_targets import visible_targets
from steadytrain.capture.step.input_recorder import MicroBatch, tensors_in

SQUARES = "MseLoss"
ROWS_MIN, ELEMENTS_MAX = 64, 1 << 20
COLUMNS_MAX, COLUMN_ROWS_MIN = 64, 16
"""Vectors of at most so many columns, in at least so many rows, are compared column by column."""

NOISE_MIN = 1024
"""Elements of a target that can be told to be standard noise."""

UNIFORM_MIN = 512
"""The same for uniform noise, whose range tells as well."""

NOISE_ERRORS, SPREAD_APART = 4.0, 0.05
"""Standard errors of the mean from 0, and how far the standard deviation may be from 1."""

FOURTH_OF_UNIFORM = 1.8
"""The fourth moment of a uniform distribution over the square of its variance."""

GROWS_BY = 0.15
"""How much more of the target an input at a late time holds than one at an early time, as a coefficient."""


def squared_target(node: Any) -> Tensor | None:
    """The target of a node ``SQUARES``, if it has no gradient and the prediction has one."""
    if [one is not None for one, _ in node.next_functions] not in ([True], [True, False]):
        return None
    target = plain_tensor(node, "target")
    return target if target is not None and target.is_floating_point() and target.dim() > 0 else None


class RegressionTargets:
    """Serves one stream: the mean and variance of each element of a target over the rows of all looks."""

    def __init__(self) -> None:
        self._rows = 0
        self._times = SharedTimes()
        self._mean: Tensor | None = None
        self._squares: Tensor | None = None

    @torch.no_grad()
    def rows(self, targets: Sequence[Tensor], call: MicroBatch | None) -> Iterator[tuple[str, float]]:
        """Rows of a graph with one squared error.

        ``target-variance`` is the mean over the elements of a target of their variance over rows: what a constant
        prediction costs. ``noise-correlation`` is the largest correlation of a target that is standard normal noise
        with an input of the model of its shape, in standard errors. ``uniform-noise`` is, of a target that is uniform
        between 0 and 1, the coefficient with which such an input holds it at late times less that at early times.
        """
        if len(targets) != 1 or targets[0].numel() > ELEMENTS_MAX:
            return
        target = targets[0]
        variance = self._variance(target.double())
        if variance is not None and variance > 0.0:
            yield "target-variance", variance
        given = tuple(tensors_in((call.args, call.kwargs))) if call is not None else ()
        alike = [one for one in given if one.shape == target.shape and one.is_floating_point()]
        if alike and _is_noise(target):
            yield "noise-correlation", max(_correlation(one.detach(), target) for one in alike)
            yield from self._times.rows(target, given)
        yield from visible_targets(target, given)
        times = [one for one in given if one.numel() == len(target) and len(one) == len(target)]
        if alike and len(times) == 1 and _is_uniform(target):
            late = times[0].detach().reshape(-1).double()
            late = late > late.median()
            if bool(late.any()):
                grown = (_coefficient(one, target, late) - _coefficient(one, target, ~late) for one in alike)
                yield "uniform-noise", max(grown)

    def _variance(self, target: Tensor) -> float | None:
        """Welford's update by whole batches; None until there are enough rows, or where their shape changes."""
        count, mean = len(target), target.mean(0)
        squares = (target - mean).square().sum(0)
        if self._mean is None or self._squares is None or self._mean.shape != mean.shape:
            self._rows, self._mean, self._squares = count, mean, squares
        else:
            total, apart = self._rows + count, mean - self._mean
            self._squares += squares + apart.square() * (self._rows * count / total)
            self._mean += apart * (count / total)
            self._rows = total
        if self._rows < ROWS_MIN:
            return None
        return float(self._squares.mean()) / (self._rows - 1)


def _is_noise(target: Tensor) -> bool:
    """Whether the values have the mean, spread and fourth moment of standard normal noise."""
    count = target.numel()
    if count < NOISE_MIN:
        return False
    values = target.double()
    error = 1.0 / math.sqrt(count)
    fourth = float(values.pow(4).mean())
    return (
        abs(float(values.mean())) < NOISE_ERRORS * error
        and abs(float(values.std()) - 1.0) < SPREAD_APART
        and abs(fourth - 3.0) < max(0.5, NOISE_ERRORS * math.sqrt(96.0) * error)
    )


def _is_uniform(target: Tensor) -> bool:
    """Whether the values have the range, mean, spread and fourth moment of a uniform distribution between 0 and 1."""
    count = target.numel()
    if count < UNIFORM_MIN or float(target.min()) < 0.0 or float(target.max()) >= 1.0:
        return False
    values = target.double() - 0.5
    square = float(values.square().mean())
    return (
        abs(float(values.mean())) < NOISE_ERRORS * math.sqrt(1.0 / 12.0 / count)
        and abs(12.0 * square - 1.0) < SPREAD_APART
        and abs(float(values.pow(4).mean()) / square**2 - FOURTH_OF_UNIFORM) < SPREAD_APART
    )


def _coefficient(one: Tensor, target: Tensor, rows: Tensor) -> float:
    """How much of ``target`` these rows of ``one`` hold."""
    x, y = one.detach()[rows].double().reshape(-1), target[rows].double().reshape(-1)
    x, y = x - x.mean(), y - y.mean()
    square = float(y @ y)
    return float(x @ y) / square if square > 0.0 else 0.0


def _correlation(one: Tensor, other: Tensor) -> float:
    """Of all elements, in standard errors; 0 if one of them is constant. Of vectors also the largest of two columns:
    what one of them tells need not stand at its own place."""
    x, y = one.double().reshape(-1), other.double().reshape(-1)
    x, y = x - x.mean(), y - y.mean()
    size = float(x.norm() * y.norm())
    found = abs(float(x @ y)) / size * math.sqrt(len(x)) if size > 0.0 else 0.0
    if one.dim() != 2 or one.shape[1] > COLUMNS_MAX or len(one) < COLUMN_ROWS_MIN:
        return found
    a, b = (both.double() - both.double().mean(0) for both in (one, other))
    sizes = torch.outer(a.norm(dim=0), b.norm(dim=0))
    columns = (a.T @ b).abs() / sizes.clamp(min=torch.finfo(sizes.dtype).tiny) * math.sqrt(len(one))
    by_chance = math.sqrt(2.0 * math.log(columns.numel()))  # the largest of so many standard normal numbers
    return max(found, float(columns.max()) - by_chance)
