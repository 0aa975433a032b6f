"""Norms and exact counts of tensors, against NumPy in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from steadytrain.capture.tensors.statistics import (
    FLOAT32_MAX,
    TensorState,
    dense_values,
    exact_state,
    fetch,
    global_norm,
    l2_norms,
    recorded_norm,
)
from steadytrain.capture.tensors.statistics import norms as norms_module

NAN, INF = float("nan"), float("inf")
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def norm_of(tensor: Tensor) -> float:
    (norm,) = fetch(l2_norms([tensor]))
    return norm


def reference(tensor: Tensor) -> TensorState:
    """What a tensor holds, by NumPy: counts, and the norm of the finite rest by a sum that cannot overflow."""
    values = tensor.detach().to(torch.float64).numpy().ravel()
    finite = values[np.isfinite(values)]
    largest = float(np.abs(finite).max(initial=0.0))
    norm = largest * math.sqrt(float(np.square(finite / largest).sum())) if largest else 0.0
    return TensorState(int(np.isnan(values).sum()), int(np.isinf(values).sum()), values.size, norm)


# name -> tensor: how many NaN and Inf it holds, and its norm.
STATES: dict[str, tuple[Tensor, tuple[int, int, int, float]]] = {
    "zeros": (torch.zeros(5), (0, 0, 5, 0.0)),
    "empty": (torch.zeros(0), (0, 0, 0, 0.0)),
    "empty, two dimensions": (torch.zeros(3, 0), (0, 0, 0, 0.0)),
    "one number": (torch.tensor(-3.0), (0, 0, 1, 3.0)),
    "one NaN": (torch.tensor(NAN), (1, 0, 1, 0.0)),
    "ordinary": (torch.tensor([3.0, -4.0]), (0, 0, 2, 5.0)),
    "NaN and Inf": (torch.tensor([3.0, NAN, INF, -INF, -4.0]), (1, 2, 5, 5.0)),
    "huge": (torch.full((4,), 3e38), (0, 0, 4, 6e38)),
    "tiny": (torch.full((4,), 1e-30), (0, 0, 4, 2e-30)),
    "denormal": (torch.full((4,), 1e-45), (0, 0, 4, 2 * 1.401298464324817e-45)),
    "half": (torch.full((4,), 6e4, dtype=torch.float16), (0, 0, 4, 120_000.0)),
    "bfloat16": (torch.full((4,), 2.0, dtype=torch.bfloat16), (0, 0, 4, 4.0)),
    "every second one": (torch.tensor([3.0, NAN, 4.0, INF])[::2], (0, 0, 2, 5.0)),
    "transposed": (torch.tensor([[3.0, 0.0], [4.0, INF]]).T, (0, 1, 4, 5.0)),
    "one number seen many times": (torch.tensor([2.0]).expand(4), (0, 0, 4, 4.0)),
    "complex": (torch.tensor([3 + 4j, complex(NAN, INF)]), (1, 1, 4, 5.0)),
    "sparse": (torch.sparse_coo_tensor([[0, 2]], [3.0, 4.0], (5,), check_invariants=True), (0, 0, 2, 5.0)),
    "sparse with NaN": (torch.sparse_coo_tensor([[0, 2]], [NAN, 4.0], (5,), check_invariants=True), (1, 0, 2, 4.0)),
    "sparse, empty": (torch.sparse_coo_tensor(size=(5,), check_invariants=True), (0, 0, 0, 0.0)),
}


@pytest.mark.parametrize("name", STATES)
def test_state_and_norm(name: str) -> None:
    tensor, (nan, inf, count, norm) = STATES[name]
    state = exact_state(tensor)
    assert (state.nan, state.inf, state.count) == (nan, inf, count)
    assert state.norm == pytest.approx(norm, rel=1e-6, abs=0)
    values = dense_values(tensor)
    assert values is not None
    seen = norm_of(values)
    if nan or inf:
        assert not math.isfinite(seen)
    elif FLOAT32_MAX**0.5 > norm > 1e-18 or norm == 0:
        assert seen == pytest.approx(norm, rel=1e-5)


@pytest.mark.parametrize(
    "tensor",
    [torch.arange(3), torch.tensor([True]), torch.zeros(3, device="meta"), torch.zeros(2, dtype=torch.int8)],
    ids=str,
)
def test_what_holds_no_floats_is_passed_over(tensor: Tensor) -> None:
    assert dense_values(tensor) is None
    assert exact_state(tensor).finite


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
def test_compressed_sparse_gives_its_stored_values() -> None:
    tensor = torch.tensor([[0.0, 3.0], [NAN, 4.0]]).to_sparse_csr()
    assert exact_state(tensor) == TensorState(1, 0, 3, 5.0)


@given(
    values=st.lists(st.floats(width=32) | st.sampled_from([NAN, INF, -INF, 3.4e38, 1e-45, 0.0, -0.0]), max_size=40),
    dtype=st.sampled_from(FLOATS),
    stride=st.integers(1, 3),
)
@settings(max_examples=300)
def test_any_values_are_counted_exactly(values: list[float], dtype: torch.dtype, stride: int) -> None:
    tensor = torch.tensor(values, dtype=torch.float64).to(dtype).repeat_interleave(stride)[::stride]
    state, expected = exact_state(tensor), reference(tensor)
    assert (state.nan, state.inf, state.count) == (expected.nan, expected.inf, expected.count)
    assert state.norm == pytest.approx(expected.norm, rel=1e-9, abs=1e-300)
    seen = norm_of(tensor)
    # The norm carries NaN and Inf with it, and may overflow or vanish where the tensor does not.
    if expected.nan:
        assert math.isnan(seen)
    elif expected.inf:
        assert math.isinf(seen) or math.isnan(seen)
    elif 1e-18 < expected.norm < 1e18:
        assert seen == pytest.approx(expected.norm, rel=1e-5)
    recorded = recorded_norm(state)
    assert math.isnan(recorded) == (state.nan > 0)
    assert math.isinf(recorded) == (state.inf > 0 and not state.nan)
    assert math.isfinite(float(np.float32(recorded))) == state.finite


@given(st.lists(st.lists(st.floats(-1e6, 1e6, width=32), max_size=5), max_size=8), st.sampled_from(FLOATS))
@settings(max_examples=100)
def test_the_norm_of_the_whole_is_that_of_its_parts(parts: list[list[float]], dtype: torch.dtype) -> None:
    tensors = [torch.tensor(part, dtype=torch.float64).to(dtype) for part in parts]
    norms = fetch(l2_norms(tensors))
    assert len(norms) == len(tensors)
    whole = np.concatenate([tensor.double().numpy() for tensor in tensors]) if tensors else np.zeros(0)
    expected = float(np.linalg.norm(whole[np.isfinite(whole)]))
    if np.isfinite(whole).all() and (expected == 0 or expected > 1e-15):
        assert global_norm(norms) == pytest.approx(expected, rel=1e-5)


def test_mixed_types_come_back_in_order() -> None:
    tensors: list[Any] = [
        torch.full((4,), 1.0, dtype=torch.bfloat16),
        torch.zeros(0),
        torch.full((4,), 2.0, dtype=torch.float64),
        torch.full((4,), 3.0),
        torch.full((4,), 4.0, dtype=torch.float16),
    ]
    assert fetch(l2_norms(tensors)) == [2.0, 0.0, 4.0, 6.0, 8.0]
    assert fetch([]) == []
    assert l2_norms([]) == []
    assert fetch([torch.tensor([[7]]), torch.tensor(True), torch.tensor(0.1, dtype=torch.float64)]) == [7.0, 1.0, 0.1]


@pytest.mark.parametrize("dtype", FLOATS)
def test_norms_of_large_tensors_are_right(dtype: torch.dtype) -> None:
    """Equal values in one float32 sum: torch's own norm is 0.9 % off here."""
    tensor = torch.full((4096, 4097), 0.3, dtype=dtype)
    expected = float(tensor[0, 0]) * math.sqrt(tensor.numel())
    for laid_out in (tensor, tensor.t()):
        assert norm_of(laid_out) == pytest.approx(expected, rel=3e-6)
    tensor[-1, -1] = NAN
    assert math.isnan(norm_of(tensor))


def test_nan_wins_over_inf_in_the_whole() -> None:
    assert math.isinf(global_norm([1.0, INF]))
    assert math.isnan(global_norm([1.0, INF, NAN]))
    assert global_norm([]) == 0.0
    assert global_norm([3e38, 4e38]) == pytest.approx(5e38)


def test_norms_that_lie_side_by_side_are_read_as_one_tensor_in_any_order_right() -> None:
    whole = torch.arange(6, dtype=torch.float32)
    slices = [whole[at] for at in range(2, 6)]
    together = norms_module._side_by_side(slices)
    assert together.tolist() == [2.0, 3.0, 4.0, 5.0]
    assert together.data_ptr() == slices[0].data_ptr()
    assert norms_module._side_by_side([slices[2], slices[0], slices[1]]).tolist() == [4.0, 2.0, 3.0]
    assert norms_module._side_by_side([torch.tensor([7.0]), whole[1]]).tolist() == [7.0, 1.0]
    assert norms_module._side_by_side([whole[5], torch.tensor(8.0)]).tolist() == [5.0, 8.0]
