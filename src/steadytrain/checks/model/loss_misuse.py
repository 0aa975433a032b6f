"""Does the loss function get the inputs that it expects?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from steadytrain.checks.subject.model_check import (
    Check,
    Cost,
    LossCall,
    Outcome,
    Subject,
    failed,
    not_run,
    passed,
    warned,
)
from steadytrain.checks.subject.short_training import few_rows
from steadytrain.core.plugins import threshold

CLASS_LOSSES = ("cross_entropy", "nll_loss")
ROWS_MAX = 8
DISTANCES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")


@final
@dataclass(frozen=True)
class LossMisuse(Check):
    """The loss function gets the inputs, shapes and reduction that it expects.

    Means:
        The check examines each call of torch's loss functions in the script's own code: the operation that made the
        scores, whether they are logits or probabilities as the function expects, the shapes and the reduction. Most of
        these mistakes raise no error; the model trains slowly and ends worse.

    Causes:
        - softmax before cross_entropy, sigmoid before binary_cross_entropy_with_logits: squashed twice
        - nll_loss on logits: it expects log-probabilities
        - softmax over a single unit: it is always 1
        - predictions [N, 1] against targets [N]: each is compared with every target
        - the logarithm of a probability that can be 0
        - a sum over the batch where the learning rate was chosen for a mean

    Next:
        1. Give cross_entropy the logits, and apply softmax only where you read probabilities.
        2. For predictions [N, 1] call `.squeeze(-1)`, or give the targets the same shape.
        3. Use log_softmax(x) in place of log(softmax(x)).
    """

    cost: ClassVar[Cost] = "free"
    source: ClassVar[str] = "PyTorch documentation of the loss functions; Karpathy's list of common mistakes (2018)"

    sum_rows_min: int = threshold(2, "number of rows from which a sum in place of a mean warns")

    def inspect(self, subject: Subject) -> Outcome:
        batch = few_rows(subject.batches[0], ROWS_MAX)
        look = subject.look(batch)
        if not look.loss_calls:
            return not_run("no call of torch's loss functions was seen: the loss is computed by hand, or by a kernel")
        faults, remarks = [], []
        for call in look.loss_calls:
            faults += _faults(call)
            remarks += _remarks(call)
            if call.options.get("reduction") == "sum" and _is(look.loss, call.result):
                rows = batch.rows or 0
                if rows >= self.sum_rows_min:
                    remarks.append(f"{call.function} sums over the batch: the gradient grows with its size")
        names = [call.function for call in look.loss_calls]
        numbers: dict[str, Any] = {"calls": names, "faults": faults, "remarks": remarks}
        if faults:
            return failed("; ".join(dict.fromkeys(faults)), **numbers)
        if remarks:
            return warned("; ".join(dict.fromkeys(remarks)), **numbers)
        return passed(f"{', '.join(dict.fromkeys(names))} gets what it takes", **numbers)


def _faults(call: LossCall) -> list[str]:
    scores, targets, made = call.scores, call.targets, call.made_by
    shape = tuple(scores.shape)
    found = []
    classes = shape[1] if len(shape) > 1 else shape[0] if shape else 0
    if call.function == "cross_entropy" and made in ("softmax", "sigmoid"):
        found.append(f"cross_entropy gets the output of {made}, and takes softmax of it again")
    if call.function in CLASS_LOSSES and len(shape) > 1 and classes == 1:
        found.append(f"{call.function} over a single class: the loss is always 0")
    if call.function == "nll_loss" and made != "log_softmax":
        values = scores.detach()
        if made == "softmax" or bool((values > 0).any()):
            found.append(f"nll_loss gets {'probabilities' if made == 'softmax' else 'logits'}, not log-probabilities")
    if call.function == "binary_cross_entropy_with_logits" and made in ("sigmoid", "softmax"):
        found.append(f"binary_cross_entropy_with_logits gets the output of {made}, and takes the sigmoid of it again")
    if call.function.startswith("binary_cross_entropy") and made == "softmax" and shape and shape[-1] == 1:
        found.append("softmax over a single unit is always 1")
    if call.function == "kl_div" and made in ("softmax", "sigmoid"):
        found.append("kl_div gets probabilities as its input, not log-probabilities")
    if call.function in (*DISTANCES, "difference") and _is_table(call):
        found.append(f"predictions {list(shape)} against targets {list(targets.shape)}: each is compared with all")
    return found


def _remarks(call: LossCall) -> list[str]:
    found = []
    if call.function == "cross_entropy" and call.made_by == "log_softmax":
        found.append("cross_entropy gets the output of log_softmax: taken twice it is the same, and not needed")
    if call.function == "cross_entropy" and call.made_by == "relu":
        found.append("cross_entropy gets the output of relu: no class can have a score below 0")
    if call.function == "log" and _reaches_zero(call.scores):
        found.append(f"the logarithm of {call.made_by} is -Inf where that underflows to 0; log_softmax is not")
    elif call.function == "log":
        found.append(f"the logarithm of {call.made_by} is not safe where that comes close to 0")
    return found


def _is_table(call: LossCall) -> bool:
    """Whether different shapes were broadcast to more values than either has."""
    targets = call.targets
    if not isinstance(targets, Tensor) or targets.shape == call.scores.shape:
        return False
    spread = int(torch.broadcast_shapes(call.scores.shape, targets.shape).numel())  # type: ignore[no-untyped-call]
    return spread > max(call.scores.numel(), targets.numel())


def _reaches_zero(scores: Tensor) -> bool:
    return bool((scores.detach() == 0).any())


def _is(loss: Tensor, result: object) -> bool:
    """Whether the loss equals that result."""
    if not isinstance(result, Tensor) or result.numel() != 1:
        return False
    one, other = float(loss.detach()), float(result.detach())
    return bool(torch.isclose(torch.tensor(one), torch.tensor(other), rtol=1e-4))
