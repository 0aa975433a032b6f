"""Parameters, and the rows that are expected of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from steadytrain.capture.tensors.statistics import TensorWatch
from steadytrain.core.model import Reading


def cell(reading: Reading, column: str, row: int = 0) -> float:
    return float(reading.values[row, reading.columns.index(column)])


def measure(
    parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer, *, scale: float = 1.0, **sizes: int
) -> Reading:
    """A look before, the step, a look after."""
    watch = TensorWatch([f"p{at}" for at in range(len(parameters))], parameters, **sizes)
    watch.before_update(scale=scale)
    optimizer.step()
    readback = watch.after_update([optimizer])
    assert readback.ready()
    return readback.result()


def filled(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)
