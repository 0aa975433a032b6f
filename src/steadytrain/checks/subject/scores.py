"""The inputs of a loss in one form: scores [rows, positions, classes] and targets [rows, positions].

They come from the calls of torch's loss functions in a :class:`Look`. Not here: hand-written losses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from steadytrain.checks.subject.model_check import Batch, Look, LossCall

IGNORED = -100
_INTEGERS = (torch.int64, torch.int32, torch.uint8, torch.int16, torch.int8)


@dataclass(frozen=True, eq=False)
class Scores:
    """Class logits (or log-probabilities), [rows, positions, classes] with their graph, and their targets.

    ``targets`` [rows, positions] holds classes; ``counted`` marks those that the loss function counts.
    """

    logits: Tensor
    targets: Tensor
    counted: Tensor
    call: LossCall

    @property
    def classes(self) -> int:
        return int(self.logits.shape[-1])

    @property
    def positions(self) -> int:
        return int(self.logits.shape[1])


def class_call(look: Look) -> LossCall | None:
    """The last call of a classification loss with integer targets, None if there is none."""
    calls = [call for call in look.loss_calls if call.function in ("cross_entropy", "nll_loss")]
    integer = [call for call in calls if isinstance(call.targets, Tensor) and call.targets.dtype in _INTEGERS]
    return integer[-1] if integer else None


def scores_of(look: Look, rows: int | None) -> Scores | None:
    """The scores of the last classification loss, by rows of the batch; None if their layout is unknown."""
    call = class_call(look)
    if call is None:
        return None
    logits, targets = call.scores, call.targets
    if logits.dim() == 1:
        logits, targets = logits.unsqueeze(0), targets.reshape(1)
    if logits.dim() > 2:  # [rows, classes, positions...]
        logits = logits.flatten(2).transpose(1, 2)
        targets = targets.flatten(1)
    elif rows and len(logits) != rows and len(logits) % rows == 0:
        logits = logits.reshape(rows, len(logits) // rows, -1)
        targets = targets.reshape(rows, -1)
    elif not rows or len(logits) == rows:
        logits, targets = logits.unsqueeze(1), targets.reshape(-1, 1)
    else:
        return None
    if targets.shape != logits.shape[:2]:
        return None
    ignored = int(call.options.get("ignore_index", IGNORED))
    return Scores(logits, targets.long(), targets != ignored, call)


def guess_loss(look: Look) -> tuple[float, str] | None:
    """The loss of a model that knows nothing about the inputs, and how it was computed.

    For classes ln C (Karpathy 2019), for one logit per class ln 2, for a squared error the mean of the squared targets:
    an untrained network outputs about 0.
    """
    for call in reversed(look.loss_calls):
        targets, scores = call.targets, call.scores
        if call.function in ("cross_entropy", "nll_loss") and scores.dim() >= 1:
            classes = int(scores.shape[1] if scores.dim() > 1 else scores.shape[0])
            return math.log(classes), f"ln {classes}, all classes alike"
        if call.function in ("binary_cross_entropy", "binary_cross_entropy_with_logits"):
            return math.log(2.0), "ln 2, both answers alike"
        if not isinstance(targets, Tensor) or not targets.numel():
            continue
        wanted = targets.detach().double()
        if call.function == "mse_loss":
            return float(wanted.square().mean()), "the mean of the squared targets, all predictions 0"
        if call.function == "l1_loss":
            return float(wanted.abs().mean()), "the mean of the absolute targets, all predictions 0"
    return None


def loss_of_a_target(look: Look) -> float | None:
    """The loss for each target, where the script sums over them (``reduction="sum"``): what else it adds or divides by
    is not known. None for other losses."""
    call = next((one for one in reversed(look.loss_calls) if isinstance(one.targets, Tensor)), None)
    if call is None or call.options.get("reduction") != "sum" or not isinstance(call.result, Tensor):
        return None
    ignored = call.options.get("ignore_index", -100)
    classes = call.function in ("cross_entropy", "nll_loss") and not call.targets.is_floating_point()
    count = int((call.targets != ignored).sum()) if classes else call.targets.numel()
    return float(call.result.detach()) / count if count else None


def whole_step(batch: Batch, look: Look) -> float:
    """The factor that turns the loss into the mean over its own targets.

    It is 1 unless the model divides by the number of targets in all micro-batches of a step (``num_items_in_batch``).
    """
    call, items = class_call(look), batch.kwargs.get("num_items_in_batch")
    if call is None or items is None:
        return 1.0
    counted = int((call.targets != int(call.options.get("ignore_index", IGNORED))).sum())
    return float(items) / counted if counted else 1.0


def best_constant_loss(call: LossCall) -> float | None:
    """The loss of the best guess that ignores the inputs: the targets' entropy or variance. None if unknown."""
    targets = call.targets
    if not isinstance(targets, Tensor) or not targets.numel():
        return None
    if call.function in ("cross_entropy", "nll_loss") and targets.dtype in _INTEGERS:
        kept = targets[targets != int(call.options.get("ignore_index", IGNORED))]
        return entropy(kept) if kept.numel() else None
    if call.function in ("binary_cross_entropy", "binary_cross_entropy_with_logits"):
        share = targets.detach().double().mean().clamp(1e-12, 1 - 1e-12)
        return float(-(share * share.log() + (1 - share) * (1 - share).log()))
    if call.function == "mse_loss":
        return float(targets.detach().double().var(dim=0, unbiased=False).mean())
    return None


def entropy(classes: Tensor) -> float:
    """Entropy of the class frequencies, in nats."""
    counts = torch.unique(classes, return_counts=True)[1].double()
    shares = counts / counts.sum()
    return float(-(shares * shares.log()).sum())


def lowest_loss(call: LossCall) -> float:
    """The minimum of this loss: above 0 with label smoothing, or with probabilities as targets."""
    smoothing = float(call.options.get("label_smoothing") or 0.0)
    if call.function == "cross_entropy" and isinstance(call.targets, Tensor) and call.targets.is_floating_point():
        wanted = call.targets.detach().double().clamp_min(1e-12)
        return float(-(wanted * wanted.log()).sum(dim=1 if wanted.dim() > 1 else 0).mean())
    if call.function == "cross_entropy" and smoothing > 0.0:
        classes = int(call.scores.shape[1] if call.scores.dim() > 1 else call.scores.shape[0])
        right, wrong = 1.0 - smoothing + smoothing / classes, smoothing / classes
        return -(right * math.log(right) + (classes - 1) * wrong * math.log(wrong))
    if call.function.startswith("binary_cross_entropy") and isinstance(call.targets, Tensor):
        share = call.targets.detach().double().clamp(1e-12, 1 - 1e-12)
        return float(-(share * share.log() + (1 - share) * (1 - share).log()).mean())
    return 0.0


def row_sizes(counted: Tensor) -> Sequence[int]:
    """The number of targets of each row that the loss counts."""
    return [int(count) for count in counted.sum(dim=1)]
