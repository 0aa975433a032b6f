"""Sparse, sharded, empty and wrapped tensors are measured, or a note names them."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from tensorstats_rows import cell, filled, measure
from torch import Tensor, nn

from hard_tensors import INF, NAN
from steadytrain.capture.tensors.statistics import TensorWatch

SPARSE = torch.sparse_coo_tensor([[0, 2]], [[3.0, 0.0], [4.0, INF]], (6, 2), check_invariants=True)


def odd(name: str) -> tuple[Tensor, Tensor | None]:
    """A parameter of a kind that needs care, and its gradient."""
    if name == "sparse gradient":
        return nn.Parameter(filled((6, 2), torch.float32)), SPARSE
    if name == "complex":
        return nn.Parameter(torch.complex(*filled((2, 4, 3), torch.float32))), torch.full((4, 3), 3 + 4j)
    if name == "meta":
        return nn.Parameter(torch.empty(3, device="meta")), None
    if name == "integer":
        return torch.tensor([1, 2, 3]), None
    if name == "lazy":
        return nn.LazyLinear(3).weight, None
    if name == "quantised":
        return torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), None
    return nn.Parameter(torch.ones(3).expand(4, 3)), torch.ones(4, 3)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize(
    ("name", "weight_norm", "gradient_norm", "noted"),
    [
        ("sparse gradient", None, 5.0, "sparse"),
        ("complex", None, math.sqrt(12 * 25), None),
        ("expanded", math.sqrt(12), math.sqrt(12), None),
        ("meta", NAN, NAN, "no plain floats"),
        ("integer", NAN, NAN, "no plain floats"),
        ("lazy", NAN, NAN, "no plain floats"),
        ("quantised", NAN, NAN, "no plain floats"),
    ],
)
def test_odd_tensors_are_handled_or_named(
    name: str, weight_norm: float | None, gradient_norm: float, noted: str | None
) -> None:
    parameter, gradient = odd(name)
    if gradient is not None:
        parameter.grad = gradient
    plain = nn.Parameter(torch.full((3,), 2.0))
    plain.grad = torch.ones(3)
    watch = TensorWatch(["odd", "plain"], [parameter, plain])
    for _ in range(2):
        watch.before_update()
        reading = watch.after_update([]).result()
    if weight_norm is None:
        weight_norm = float(parameter.detach().norm())
    assert cell(reading, "weight_norm") == pytest.approx(weight_norm, rel=1e-6, nan_ok=True)
    assert cell(reading, "gradient_norm") == pytest.approx(gradient_norm, rel=1e-6, nan_ok=True)
    assert cell(reading, "weight_norm", 1) == pytest.approx(math.sqrt(12))
    notes = watch.take_notes()
    assert [noted is not None and noted in note for note in notes] == ([True] if noted else [])
    assert watch.take_notes() == []


def test_wrappers_that_keep_no_values_are_named() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = nn.Parameter(torch.ones(3))
    watch = TensorWatch(["fake"], [fake])
    watch.before_update()
    assert np.isnan(watch.after_update([]).result().values).all()
    assert "fake holds no plain floats" in watch.take_notes()[0]


@pytest.fixture
def one_rank() -> Iterator[None]:
    import torch.distributed as distributed

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_sharded_parameters_give_their_local_part(one_rank: None) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (1,))
    readings = []
    for spread in (lambda tensor: tensor, lambda tensor: distribute_tensor(tensor, mesh, [Shard(0)])):
        parameter = nn.Parameter(spread(filled((30, 5), torch.float32)))
        parameter.grad = spread(filled((30, 5), torch.float32, 1))
        readings.append(measure([parameter], torch.optim.AdamW([parameter])).values)
    assert np.array_equal(*readings)


def test_epsilon_that_its_dtype_cannot_hold_is_named() -> None:
    parameter = nn.Parameter(filled((3, 4), torch.float16))
    parameter.grad = filled((3, 4), torch.float16)
    optimizer = torch.optim.AdamW([parameter], eps=1e-8)
    watch = TensorWatch(["p"], [parameter])
    watch.before_update()
    optimizer.step()
    assert math.isnan(cell(watch.after_update([optimizer]).result(), "gradient_rms_to_epsilon"))
    (note,) = watch.take_notes()
    assert "epsilon 1e-08 is zero in torch.float16" in note
