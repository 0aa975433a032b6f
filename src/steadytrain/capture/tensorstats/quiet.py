"""Under which modes our own tensor operations run: none of the user's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch.utils._python_dispatch import _disable_current_modes


@contextmanager
def quiet(*device_types: str) -> Iterator[None]:
    """No autograd, no autocast on the CPU and ``device_types``, no dispatch, function or device modes of others.

    Inference mode is left, so that what we keep can be written to later whatever mode that happens in.
    """
    with ExitStack() as stack:
        stack.enter_context(torch._C.DisableTorchFunction())
        stack.enter_context(_disable_current_modes())
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.no_grad())
        for device_type in {"cpu", *device_types}:
            if torch.is_autocast_enabled(device_type):
                stack.enter_context(torch.autocast(device_type, enabled=False))
        yield
