"""Which elements a sample holds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from steadytrain.capture.tensors.statistics.layout import HELD_BYTES_MIN, HELD_SHARE_MAX, lay_out
from steadytrain.capture.tensors.statistics.sample_chunks import CHUNK, SAMPLE_MAX, plan_for


def numbered(shape: tuple[int, ...]) -> Tensor:
    return torch.arange(int(np.prod(shape)), dtype=torch.float64).reshape(shape)


@given(
    shape=st.lists(st.integers(0, 40), min_size=0, max_size=4).map(tuple),
    order=st.randoms(use_true_random=False),
    size_max=st.integers(CHUNK, 2000),
)
@settings(max_examples=200)
def test_a_sample_holds_different_elements_and_all_of_a_small_tensor(shape, order, size_max) -> None:  # type: ignore[no-untyped-def]
    dimensions = list(range(len(shape)))
    order.shuffle(dimensions)
    tensor = numbered(shape).permute(dimensions)
    plan = plan_for(tensor, size_max)
    found = plan.view(tensor)
    assert found.shape == (plan.chunks, plan.chunk)
    assert len(set(found.reshape(-1).tolist())) == found.numel() == plan.length
    if tensor.numel() <= size_max:
        assert plan.whole
        assert plan.length == tensor.numel()
    else:
        assert size_max // 3 <= plan.length <= size_max
    if plan.length:
        assert found.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()  # no copy


@pytest.mark.parametrize("shape", [(300, 400), (50, 8, 3, 3), (20_000,), (7, 11, 500)])
def test_what_belongs_to_a_parameter_is_read_at_the_same_elements(shape: tuple[int, ...]) -> None:
    tensor = numbered(shape)
    plan = plan_for(tensor, 1000)
    expected = plan.view(tensor)
    elsewhere = [
        tensor.transpose(0, -1).contiguous().transpose(0, -1),  # the same values, laid out another way
        torch.stack([tensor, -tensor], dim=-1)[..., 0],  # with gaps
    ]
    for other in elsewhere:
        assert torch.equal(plan.view(other), expected)
    turned = tensor.transpose(0, -1)
    assert torch.equal(plan_for(turned, 1000).view(turned).sort().values, expected.sort().values)
    expanded = tensor[:1].expand(shape)
    assert torch.equal(plan.view(expanded), expanded.reshape(-1)[plan.view(tensor).long()])


@pytest.mark.parametrize("shape", [(512, 512), (2048, 512), (512, 2048), (8192, 512), (50257, 768), (512, 512, 3, 3)])
def test_all_columns_and_rows_have_their_share(shape: tuple[int, ...]) -> None:
    tensor = torch.empty(shape, device="meta")
    plan = plan_for(tensor)
    starts = torch.arange(plan.chunks) * plan.step
    row = tensor.numel() // shape[0]
    columns = torch.bincount((starts % row) * 8 // row, minlength=8)
    rows = torch.bincount((starts // row) * 8 // shape[0], minlength=8)
    assert plan.length > SAMPLE_MAX * 0.6
    assert columns.min() * 2 > plan.chunks / 8  # no eighth of the columns has less than half of its share
    assert rows.min() * 2 > plan.chunks / 8


def test_samples_stay_within_their_share_of_memory() -> None:
    many = {row: torch.empty(20_000) for row in range(200)}  # 16 MB of weights, all of it within the sample
    large = {row: torch.empty(300, 1000, dtype=torch.bfloat16) for row in range(200)}
    for tensors in (many, large):
        state = 3 * sum(tensor.nbytes for tensor in tensors.values())
        budget = max(HELD_BYTES_MIN, HELD_SHARE_MAX * state)
        assert 0.7 * budget < lay_out(tensors, SAMPLE_MAX).held_bytes <= budget
    assert lay_out({0: torch.empty(100_000)}, SAMPLE_MAX).plans[0].length > SAMPLE_MAX * 0.6
