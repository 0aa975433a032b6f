"""Compares the compiled model with its eager original on the last batch, with a control.

The two may differ by rounding. The control measures how much: the eager model against itself in float64. Compiled
dropout draws other random numbers, so a random model is compared in evaluation mode.
"""

from __future__ import annotations

import copy
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.capture.step.input_recorder import MicroBatch, RandomState, map_tensors
from steadytrain.core.living_objects import living
from steadytrain.core.torch_private import OPTIMIZED_MODULE, ORIGINAL_MODULE
from steadytrain.survey.tensor_values import first_output

CONTROL_ELEMENTS_MAX = 50_000_000
"""Larger models are not copied to float64 and have no control."""


@torch.no_grad()
def compiled(call: MicroBatch) -> dict[str, Any]:
    """The deviation of the compiled model from the eager one, in units of rounding."""
    kind = OPTIMIZED_MODULE.loaded()
    if kind is None:
        return {}
    found = living(kind)
    if not found:
        return {}
    fast, slow = found[0], ORIGINAL_MODULE.of(found[0])
    facts: dict[str, Any] = {"compiled": [type(slow).__name__]}
    modes = {module: module.training for module in slow.modules()}
    try:
        if _is_random(slow, call):
            slow.eval()
        random = RandomState.take()
        quick = _output(fast, call)
        random.restore()
        plain = _output(slow, call)
        if quick is None or plain is None or quick.shape != plain.shape:
            return facts
        rounding = float(plain.double().abs().max()) * torch.finfo(plain.dtype).eps
        if rounding > 0:
            facts["compiled_difference"] = float((quick.double() - plain.double()).abs().max()) / rounding
            random.restore()
            exact = _in_float64(slow, call)
            if exact is not None and exact.shape == plain.shape:
                facts["compiled_rounding"] = float((exact - plain.double()).abs().max()) / rounding
    finally:
        for module, training in modes.items():
            module.training = training
    return facts


def _is_random(model: nn.Module, call: MicroBatch) -> bool:
    """Whether the model's output depends on random numbers."""
    once, again = _output(model, call), _output(model, call)
    return once is not None and again is not None and not torch.equal(once, again)


def _output(model: Any, call: MicroBatch) -> Tensor | None:
    """The model's output for the batch, under the recorded autocast."""
    with ExitStack() as contexts:
        for device, dtype in call.autocast.enabled:
            contexts.enter_context(torch.autocast(device, dtype=dtype))
        return first_output(model(*call.args, **call.kwargs))


def _in_float64(model: nn.Module, call: MicroBatch) -> Tensor | None:
    if sum(parameter.numel() for parameter in model.parameters()) > CONTROL_ELEMENTS_MAX:
        return None
    try:
        wide = copy.deepcopy(model).double()
        args, kwargs = map_tensors((call.args, call.kwargs), _widened)
        with ExitStack() as contexts:
            for device, _ in call.autocast.enabled:
                contexts.enter_context(torch.autocast(device, enabled=False))
            return first_output(wide(*args, **kwargs))
    except Exception:  # a model that cannot be copied, or that fixes a dtype, has no control
        return None


def _widened(value: Tensor) -> Tensor:
    return value.double() if value.is_floating_point() else value
