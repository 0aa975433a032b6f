"""Records the number formats of a run: of parameters, gradients, optimizer state, compute and logits.

This happens once, when the first step is over and the optimizer has its state. Not here: the gradient scaler
(``gradient_scaling``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.step.input_recorder import AutocastState

DEPTH_MAX = 4


def precision_facts(
    parameters: Sequence[Tensor],
    optimizers: Sequence[torch.optim.Optimizer],
    *,
    autocast: AutocastState | None,
    logits: str | None,
) -> dict[str, Any]:
    """Number formats as JSON; counts are elements. Nothing is read from a device.

    Args:
        autocast: the state at the model call.
        logits: the result of :func:`logits_dtype` for the model's output.
    """
    state = [
        value
        for optimizer in optimizers
        for entry in optimizer.state.values()
        if isinstance(entry, Mapping)
        for name, value in entry.items()
        if isinstance(value, Tensor) and name != "step"
    ]
    return {
        "parameters": _counted(parameters),
        "trained_parameters": _counted(parameter for parameter in parameters if parameter.requires_grad),
        "gradients": _counted(parameter.grad for parameter in parameters if parameter.grad is not None),
        "optimizer_state": _counted(state),
        "autocast": {device: str(dtype) for device, dtype in autocast.enabled} if autocast is not None else {},
        "logits": logits,
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
    }


def logits_dtype(output: Any) -> str | None:
    """The format of a model's ``logits``, or of the largest floating-point tensor that it returns."""
    if isinstance(output, Mapping) and isinstance(output.get("logits"), Tensor):
        return str(output["logits"].dtype)
    floating = [tensor for tensor in _tensors(output, DEPTH_MAX) if tensor.is_floating_point()]
    largest = max(floating, key=lambda tensor: tensor.numel(), default=None)
    return str(largest.dtype) if largest is not None else None


def _counted(tensors: Iterable[Tensor]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for tensor in tensors:
        found[str(tensor.dtype)] += tensor.numel()
    return dict(found)


def _tensors(value: Any, depth: int) -> Iterable[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif depth and isinstance(value, (Mapping, list, tuple)):
        for entry in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(entry, depth - 1)
