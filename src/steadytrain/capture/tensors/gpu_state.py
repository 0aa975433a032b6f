"""Whether a GPU is recording a CUDA graph, which concerns every reading of it."""

from __future__ import annotations

import torch


def is_capturing() -> bool:
    """Whether a CUDA graph is being captured: our kernels would become part of it, and a read would end it."""
    try:
        return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()  # type: ignore[no-untyped-call]
    except RuntimeError:  # the device has failed: the next call of the script says so
        return False
