"""Reads whether an input of the model lies so far from zero that its format rounds the differences between rows away.

A float32 of 1.7e9, as a time in seconds, is a multiple of 128. What is taken of it later, a difference, a remainder or
a phase, has lost all that is finer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from steadytrain.capture.looks.call_settings import arguments_of, setting_rows
from steadytrain.capture.step.input_recorder import MicroBatch
from steadytrain.core.torch_private import IS_FUNCTORCH

ROWS_MIN, ROWS_MAX, COLUMNS_MAX = 8, 256, 64
FIRST_STEPS = 48
"""Steps in which inputs are read: three looks, 16 steps apart."""


def call_rows(calls: Sequence[MicroBatch], step: int) -> Iterator[tuple[str, float]]:
    """What the arguments of the first call of a step show, after ``step`` updates."""
    yield from setting_rows(calls)
    if step < FIRST_STEPS:
        yield from coarse_rows(calls)


@torch.no_grad()
def coarse_rows(calls: Sequence[MicroBatch]) -> Iterator[tuple[str, float]]:
    """``coarse-input:NAME`` is the distance between neighbouring numbers of the input's format, over the standard
    deviation of its rows: of the column where that is largest. Reads the device once for each input."""
    for name, value in arguments_of(calls).items():
        if (
            type(value) is Tensor
            and not IS_FUNCTORCH(value)
            and value.layout is torch.strided
            and value.dtype in (torch.float32, torch.float16, torch.bfloat16)
            and 0 < value.dim() < 3
        ):
            share = _coarseness(value.detach())
            if share is not None:
                yield f"coarse-input:{name}", share


def _coarseness(value: Tensor) -> float | None:
    rows = value[:ROWS_MAX].reshape(min(len(value), ROWS_MAX), -1)[:, :COLUMNS_MAX]
    if len(rows) < ROWS_MIN:
        return None
    eps = torch.finfo(value.dtype).eps
    wide = rows.double()
    distance = torch.exp2(torch.floor(torch.log2(wide.abs().median(0).values.clamp(min=1e-300)))) * eps
    spread = wide.std(0)
    shares = torch.where(spread > 0, distance / spread.clamp(min=1e-300), torch.zeros_like(spread))
    if value.dtype != torch.float32:
        shares = shares / 100  # half formats round everything: only far more than that is reported
    return float(shares.max())
