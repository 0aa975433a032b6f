"""Disables the user's modes for our own tensor operations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor

from steadytrain.core.torch_private import DISPATCH_DEPTH, NO_MODES, NO_TORCH_FUNCTION


@contextmanager
def quiet(tensors: Iterable[Tensor] = ()) -> Iterator[None]:
    """Disables autograd, autocast on the CPU and the devices of ``tensors``, and dispatch, function and device modes.

    Inference mode is disabled too, so tensors that we keep can be written later in any mode.
    """
    with ExitStack() as stack:
        stack.enter_context(NO_TORCH_FUNCTION())
        if DISPATCH_DEPTH():  # a step enters this several times, so what is off already is left alone
            stack.enter_context(NO_MODES())
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        if torch.is_grad_enabled():
            stack.enter_context(torch.no_grad())
        for device_type in {"cpu", *(tensor.device.type for tensor in tensors)}:
            if torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type):
                stack.enter_context(torch.autocast(device_type, enabled=False))
        yield
