"""Losses that a script computes in an evaluation of its own: how one call counts, and sums of calls.

A call counts by its rows (a likelihood, without those that are ignored) or by its elements. Sums stay on the device:
nothing is read before the evaluation is over. Not here: which calls belong to an evaluation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.step.loss import LossTerm
from steadytrain.core.torch_private import (
    OF_CLASSES,
    OF_HUBER,
    OF_POSITIVES,
    OF_SMOOTH,
    SAVED_IGNORED,
    SAVED_REDUCTION,
)

NONE, MEAN = 0, 1
"""``reduction`` as torch's functions get it: none, mean, and sum (2)."""

LIKELIHOODS = ("cross_entropy_loss", "nll_loss_nd")
REDUCED_AT = dict.fromkeys(LIKELIHOODS, 3) | {"binary_cross_entropy": 3, "binary_cross_entropy_with_logits": 4}
IGNORE_INDEX = -100
OTHER = "another"

KINDS = {
    "NllLossBackward0": "likelihood",
    "NllLoss2DBackward0": "likelihood",
    "MseLossBackward0": "mse_loss",
    "SmoothL1LossBackward0": "smooth_l1_loss",
    "HuberLossBackward0": "huber_loss",
    "BinaryCrossEntropyBackward0": "binary_cross_entropy",
    "BinaryCrossEntropyWithLogitsBackward0": "binary_cross_entropy_with_logits",
}
"""Graph nodes of the losses whose options are known in training."""


def kind_of(name: str, args: Sequence[Any]) -> str:
    """The loss of a call, as :func:`kind_of_training` names it: a mean without weights, "another" with options."""
    if name in LIKELIHOODS:
        smoothing = args[5] if len(args) > 5 else 0.0
        plain = args[2] is None and not smoothing and not args[1].is_floating_point()
        return f"likelihood {args[4]}" if plain else OTHER
    if name in REDUCED_AT:
        return name if all(one is None for one in args[2 : REDUCED_AT[name]]) else OTHER
    return name if len(args) < 4 or args[3] == 1.0 else OTHER


def kind_of_training(term: LossTerm, root: Tensor) -> str:
    """The loss whose mean is the root of a backward, past factors; "another" if that is a sum of losses, weighted or
    unknown."""
    node = root.grad_fn
    for _ in term.factors:
        node = next((edge for edge, _ in node.next_functions if edge is not None), None) if node is not None else None
    kind = KINDS.get(type(node).__name__, OTHER)
    if kind == OTHER or SAVED_REDUCTION.on(node) != MEAN:
        return OTHER
    if any(_given(one.on(node)) for one in (OF_CLASSES, OF_POSITIVES, OF_SMOOTH, OF_HUBER)):
        return OTHER
    return f"{kind} {_signed(SAVED_IGNORED.on(node))}" if kind == "likelihood" else kind


def divisor_of(term: LossTerm, *, scaled: bool) -> float:
    """What the script divides the loss of a backward by, for instance the number of micro-batches of a step. NaN if a
    factor is on a device, so that reading it would wait. ``scaled``: by a gradient scaler, whose factor is outermost.
    """
    divisor = 1.0
    for factor in term.factors[1:] if scaled else term.factors:
        value = float(factor.value.item()) if factor.value.is_cpu else float("nan")
        divisor *= value if factor.power < 0 else 1.0 / value if value else float("nan")
    return divisor


def counts(value: Any) -> bool:
    """Whether a loss is a plain tensor whose values may be read."""
    return type(value) is Tensor and value.is_floating_point() and not value.is_meta and not _captured(value)


def total_of(name: str, args: Sequence[Any], result: Tensor) -> tuple[Tensor | float, Tensor | float]:
    """The sum of a call's losses, and their number."""
    given, target = args[0], args[1]
    reduced = args[REDUCED_AT.get(name, 2)]
    number: Tensor | float
    if name not in LIKELIHOODS:
        number = float(max(given.numel(), target.numel()))
    elif target.is_floating_point():
        number = float(given.numel() // given.shape[1 if given.dim() > 1 else 0])
    else:
        number = _exact((target != args[4]).sum())
    value = _exact(result.detach() if result.dim() == 0 else result.detach().sum())
    if reduced == MEAN:
        value = _times(value, number)
    return value, number


def mean_of(sums: Iterable[tuple[Tensor | float, Tensor | float]]) -> list[float]:
    """The means of several sums, read from each device at once; NaN where nothing counted."""
    pairs = [one for pair in sums for one in pair]
    held = {at: one for at, one in enumerate(pairs) if isinstance(one, Tensor)}
    read: dict[int, float] = {at: one for at, one in enumerate(pairs) if not isinstance(one, Tensor)}
    for device in {one.device for one in held.values()}:
        here = [at for at, one in held.items() if one.device == device]
        read.update(zip(here, torch.stack([held[at] for at in here]).tolist(), strict=True))
    return [read[at] / read[at + 1] if read[at + 1] else float("nan") for at in range(0, len(pairs), 2)]


def _exact(value: Tensor) -> Tensor | float:
    """As a number on the CPU, else as a new tensor of a type in which sums are exact enough."""
    if value.is_cpu:
        return float(value.item())
    return value.to(torch.float32 if value.device.type == "mps" else torch.float64, copy=True)


def _times(value: Tensor | float, number: Tensor | float) -> Tensor | float:
    """The product; 0 where nothing counted, where the mean is NaN."""
    if isinstance(number, Tensor) and isinstance(value, Tensor):
        return torch.where(number > 0, value * number, torch.zeros_like(value))
    return value * number if isinstance(number, Tensor) or number else 0.0


def _given(option: Any) -> bool:
    return isinstance(option, Tensor) or option not in (None, 1.0)


def _signed(index: Any) -> int:
    """Some versions of torch keep -100 as an unsigned number."""
    return IGNORE_INDEX if index is None else int(index) - (1 << 64 if int(index) > 1 << 62 else 0)


def _captured(value: Tensor) -> bool:
    return value.is_cuda and torch.cuda.is_current_stream_capturing()
