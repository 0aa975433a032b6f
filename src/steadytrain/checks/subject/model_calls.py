"""Call the model alone as the script called it: with the same arguments, without the loss code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.checks.subject.inputs import plain_output
from steadytrain.checks.subject.model_check import Batch, CannotError, Subject, tensors_of

Call = tuple[nn.Module, tuple[Any, ...], Mapping[str, Any]]


def calls_of(subject: Subject, batch: Batch) -> list[Call]:
    """The calls of root modules in the script's loss code, which can be repeated.

    Raises:
        CannotError: no module was called.
    """
    calls = subject.look(batch).calls if subject.look_at is not None else []
    if calls:
        return [(module, tuple(args), dict(kwargs)) for module, args, kwargs, _ in calls]
    if not batch.args and not batch.kwargs:
        raise CannotError("the model was not called")
    return [(subject.model, batch.args, batch.kwargs)]


def last_call(subject: Subject, batch: Batch) -> Call:
    """The last of :func:`calls_of`."""
    return calls_of(subject, batch)[-1]


def outputs_of(call: Call) -> list[Tensor]:
    """Every floating-point tensor that the call returns, without gradients."""
    module, args, kwargs = call
    with torch.no_grad():
        try:
            output = module(*args, **kwargs)
        except Exception as error:
            raise CannotError(f"the model cannot be called again: {type(error).__name__}: {error}") from error
    return [tensor.detach() for tensor in tensors_of([plain_output(output)]) if tensor.is_floating_point()]


def difference(one: Sequence[Tensor], other: Sequence[Tensor]) -> tuple[float, float]:
    """The largest difference between two lists of outputs, and the largest value.

    Raises:
        CannotError: their shapes differ.
    """
    if len(one) != len(other) or any(a.shape != b.shape for a, b in zip(one, other, strict=True)):
        raise CannotError("the model's outputs differ in number or shape from one call to the next")
    worst, largest = 0.0, 0.0
    for a, b in zip(one, other, strict=True):
        if a.numel():
            first, second = a.double(), b.double()
            worst = max(worst, float((first - second).abs().nan_to_num(float("inf")).max()))
            largest = max(largest, float(first.abs().nan_to_num(0.0, 0.0, 0.0).max()))
    return worst, largest
