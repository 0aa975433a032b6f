"""One pass over whole tensors with torch operations, on any device, without a synchronisation: the reference."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

PIECE = 1 << 24
"""Elements that are widened at a time: 128 MiB of float64."""


def partials(tensors: Sequence[Tensor]) -> Tensor:
    """The same as :func:`.numpy_pass.partials`, as a tensor ``(tensors, 6)`` on the device of the first tensor."""
    return torch.stack([_of_one(tensor) for tensor in tensors])


def partials_of_rows(matrix: Tensor) -> Tensor:
    """The same of each row of ``matrix``, ``(rows, length)``."""
    wide = matrix.to(accumulator(matrix.device))
    finite = torch.isfinite(wide)
    kept = torch.where(finite, wide, 0.0)
    count = finite.sum(1).to(wide.dtype)
    return torch.stack(
        [
            kept.square().sum(1),
            torch.where(finite, wide, torch.inf).amin(1),
            torch.where(finite, wide, -torch.inf).amax(1),
            kept.sum(1),
            matrix.shape[1] - count,
            count,
        ],
        dim=1,
    )


def vector(values: Sequence[float | bool], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Numbers as a tensor on the device. For a GPU the copy uses pinned memory, so nothing waits."""
    host = torch.tensor(values, dtype=dtype, device="cpu")
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host.to(device)


def accumulator(device: torch.device) -> torch.dtype:
    """The widest dtype of the device."""
    return torch.float32 if device.type == "mps" else torch.float64


def _of_one(tensor: Tensor) -> Tensor:
    if tensor.numel() == 0:
        return vector((0.0, torch.inf, -torch.inf, 0.0, 0.0, 0.0), accumulator(tensor.device), tensor.device)
    flat = tensor.reshape(-1)
    parts = torch.cat([partials_of_rows(piece[None]) for piece in torch.split(flat, PIECE)])
    return torch.stack([parts[:, 0].sum(), parts[:, 1].amin(), parts[:, 2].amax(), *parts[:, 3:].sum(0)])
