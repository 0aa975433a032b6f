"""One pass over whole tensors: blocks on the CPU and torch operations, against NumPy in float64."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from hard_tensors import NAN, laid_out, tensors, truth
from steadytrain.capture.tensors.statistics import numpy_pass, torch_pass
from steadytrain.capture.tensors.statistics.norms import FLOAT32_MAX

Partials = Callable[[list[Tensor]], NDArray[np.float64]]
PATHS: dict[str, Partials] = {
    "blocks": lambda many: numpy_pass.partials(many),
    "torch": lambda many: torch_pass.partials(many).numpy() if many else np.empty((0, 6)),
}


@pytest.fixture(params=PATHS)
def partials(request: pytest.FixtureRequest) -> Partials:
    return PATHS[request.param]


def agrees(row: NDArray[np.float64], tensor: Tensor) -> None:
    """A norm to 1e-5 of itself, a mean to 1e-5 of the mean magnitude; what else there is exactly."""
    expected = truth(tensor)
    squares, smallest, largest, total, nonfinite, finite = row.tolist()
    assert nonfinite == expected.nonfinite
    assert nonfinite + finite == expected.count
    if finite:
        assert (smallest, largest) == (expected.smallest, expected.largest)
        assert total / finite == pytest.approx(expected.mean, rel=1e-9, abs=1e-5 * expected.size + 1e-300)
    # Beyond 1e-150 and 1e150 squares leave float64; what is recorded is a float32, which has ended long before.
    if 1e-150 < expected.norm < 1e150 or expected.norm == 0:
        assert math.sqrt(squares) == pytest.approx(expected.norm, rel=1e-5)
    elif expected.norm < 1e-150:
        assert math.sqrt(squares) < 1e-149
    else:
        assert math.sqrt(squares) > FLOAT32_MAX


@given(many=st.lists(tensors(), max_size=6))
@settings(max_examples=150)
def test_any_tensors(many: list[Tensor]) -> None:
    for path in PATHS.values():
        found = path(many)
        assert found.shape == (len(many), 6)
        for row, tensor in zip(found, many, strict=True):
            agrees(row, tensor)


@pytest.mark.long
@given(many=st.lists(tensors(), max_size=6), block=st.integers(1, 40), dot=st.integers(1, 16))
@settings(max_examples=150)
def test_cuts_and_threads_change_nothing(many: list[Tensor], block: int, dot: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numpy_pass, "BLOCK", block)
        patch.setattr(numpy_pass, "_DOT", dot)
        patch.setattr(numpy_pass, "_SERIAL", block)
        patch.setattr(numpy_pass, "_ONES", np.ones((dot, 1), np.float32))
        patch.setattr(numpy_pass, "_THREADS_FROM", 0)
        patch.setattr(torch_pass, "PIECE", block)
        patch.setattr(torch, "get_num_threads", lambda: 3)
        for path in PATHS.values():
            for row, tensor in zip(path(many), many, strict=True):
                agrees(row, tensor)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("layout", ["contiguous", "strided", "transposed", "expanded"])
def test_larger_than_a_block(partials: Partials, dtype: torch.dtype, layout: str) -> None:
    values = torch.randn(numpy_pass.BLOCK + 12_345, generator=torch.Generator().manual_seed(0)) * 1e-2 + 1e-3
    values[7], values[-1] = 3.0, -4.0
    tensor = laid_out(values.to(dtype), layout)
    agrees(partials([tensor])[0], tensor)


@pytest.mark.parametrize("where", [0, numpy_pass.BLOCK - 1, numpy_pass.BLOCK, -1])
def test_one_bad_element_among_many(partials: Partials, where: int) -> None:
    for value in (NAN, math.inf, 3e38, 1e-42):
        tensor = torch.full((numpy_pass.BLOCK + 9,), 1e-3)
        tensor[where] = value
        agrees(partials([tensor])[0], tensor)


def test_no_finite_element_leaves_no_smallest(partials: Partials) -> None:
    (row,) = partials([torch.full((5,), NAN)])
    assert row.tolist() == [0.0, math.inf, -math.inf, 0.0, 5.0, 0.0]


def test_eight_bit_floats(partials: Partials) -> None:
    tensor = torch.tensor([1.0, -2.0, 0.5, NAN]).to(torch.float8_e4m3fn)
    assert partials([tensor])[0].tolist() == [5.25, -2.0, 1.0, -0.5, 1.0, 3.0]


def test_a_thread_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(values: object) -> object:
        if threading.current_thread() is not threading.main_thread():
            raise ZeroDivisionError
        return (0.0, 0.0, 0.0, 0.0, 0.0, 1)

    monkeypatch.setattr(numpy_pass, "partials_of", fails)
    monkeypatch.setattr(numpy_pass, "_THREADS_FROM", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError):
        numpy_pass.partials([torch.ones(4), torch.ones(4)])
    assert threading.active_count() == before
