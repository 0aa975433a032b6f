"""Tensors with everything in them that makes statistics hard, and what is true of them, by NumPy in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

NAN, INF = float("nan"), float("inf")
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
EXTREMES = (NAN, INF, -INF, 3.4e38, -3.4e38, 1e-45, -1e-40, 1e-30, 6e-8, 65504.0, 2.0**-40, 2.0**24, 0.0, -0.0)
LAYOUTS = ("contiguous", "strided", "transposed", "expanded", "channels last", "0-d", "empty", "reversed rows")


def values_of(tensor: Tensor) -> NDArray[np.float64]:
    """The elements, flat, in logical order. Widened by float32 first where NumPy does not know the dtype."""
    return tensor.detach().to(torch.float64).reshape(-1).numpy().copy()


@dataclass(frozen=True)
class Truth:
    """Of the finite elements; ``size`` is the mean magnitude, by which an error of the mean is judged."""

    norm: float
    smallest: float
    largest: float
    mean: float
    nonfinite: int
    count: int
    size: float


def truth(tensor: Tensor) -> Truth:
    values = values_of(tensor)
    finite = values[np.isfinite(values)]
    peak = float(np.abs(finite).max(initial=0.0))
    norm = peak * float(np.sqrt(np.square(finite / peak).sum())) if peak else 0.0
    if not finite.size:
        return Truth(0.0, NAN, NAN, NAN, values.size, values.size, 0.0)
    size = float(np.abs(finite).mean())
    return Truth(norm, finite.min(), finite.max(), finite.mean(), int(values.size - finite.size), values.size, size)


@st.composite
def tensors(draw: Any, dtypes: tuple[torch.dtype, ...] = FLOATS, layouts: tuple[str, ...] = LAYOUTS) -> Tensor:
    """A tensor of up to some hundred elements: ordinary values of any scale, or extremes, or both."""
    dtype, layout = draw(st.sampled_from(dtypes)), draw(st.sampled_from(layouts))
    scale = draw(st.sampled_from((1.0, 1e-3, 1e-30, 1e-44, 1e18, 1e30, 3e37, 0.0)))
    extremes = draw(st.lists(st.sampled_from(EXTREMES), max_size=6))
    ordinary = draw(st.integers(0, 60))
    noise = np.random.default_rng(draw(st.integers(0, 2**20))).standard_normal(ordinary) * scale
    values = np.concatenate([noise, np.array(extremes, np.float64)])
    np.random.default_rng(ordinary).shuffle(values)
    return laid_out(torch.from_numpy(values).to(dtype), layout)


def laid_out(flat: Tensor, layout: str) -> Tensor:
    """The same values in another layout (fewer or repeated ones where the layout asks for it)."""
    if layout == "empty" or not flat.numel():
        return flat.new_empty((3, 0))
    if layout == "0-d":
        return flat[0].clone()
    if layout == "strided":
        return flat.repeat_interleave(3)[::3]
    rows = flat.repeat(4)[: 4 * flat.numel() // 4 * 4].reshape(4, -1)
    if layout == "transposed":
        return rows.t()
    if layout == "expanded":
        return rows[:, :1].expand(-1, 5)
    if layout == "channels last":
        return rows.reshape(2, 2, -1, 1).to(memory_format=torch.channels_last)
    if layout == "reversed rows":
        return rows[::2, 1:] if rows.shape[1] > 1 else rows[::2]
    return flat
