"""Disables the user's modes for our own tensor operations."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from steadytrain.core.torch_private import DISPATCH_DEPTH, NO_MODES, NO_TORCH_FUNCTION


class quiet:  # noqa: N801 (reads as a verb)
    """Disables autograd, autocast on the CPU and the devices of ``tensors``, and dispatch, function and device modes.

    Inference mode is disabled too, so tensors that we keep can be written later in any mode.
    """

    def __init__(self, tensors: Sequence[Tensor] = ()) -> None:
        self._tensors = tensors
        self._function: Any = None
        self._others: ExitStack | None = None

    def __enter__(self) -> None:
        self._function = NO_TORCH_FUNCTION.get()()
        self._function.__enter__()
        try:
            self._disable_others()
        except BaseException:
            self._function.__exit__(None, None, None)
            raise

    def _disable_others(self) -> None:
        """A step enters this several times, so what is off already is left alone."""
        autocast = _autocast_on(self._tensors)
        modes = DISPATCH_DEPTH.get()()
        if not (autocast or modes or torch.is_grad_enabled() or torch.is_inference_mode_enabled()):
            return
        with ExitStack() as stack:
            if modes:
                stack.enter_context(NO_MODES())
            if torch.is_inference_mode_enabled():
                stack.enter_context(torch.inference_mode(False))
            if torch.is_grad_enabled():
                stack.enter_context(torch.no_grad())
            for device_type in autocast:
                stack.enter_context(torch.autocast(device_type, enabled=False))
            self._others = stack.pop_all()

    def __exit__(self, *exception: Any) -> None:
        others, self._others = self._others, None
        try:
            if others is not None:
                others.__exit__(*exception)
        finally:
            self._function.__exit__(*exception)


def _autocast_on(tensors: Sequence[Tensor]) -> list[str]:
    """Those of the CPU and the devices of ``tensors`` that have autocast on. Tensors that are together are on the CPU
    and on one kind of device."""
    on = ["cpu"] if torch.is_autocast_enabled("cpu") else []
    if not tensors or (tensors[0].is_cpu and tensors[-1].is_cpu):
        return on
    kinds = {tensors[0].device.type, tensors[-1].device.type} - {"cpu"}
    return on + [kind for kind in kinds if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)]
