"""The Triton kernel under Triton's interpreter, against NumPy.

Run by ``test_tensorstats_kernel.py`` in a process of its own: Triton looks at ``TRITON_INTERPRET`` when it is imported.
Chunks are small here, because the interpreter takes a millisecond for what a GPU does in a microsecond.
"""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from hard_tensors import tensors, truth

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("runs under Triton's interpreter", allow_module_level=True)

from steadytrain.capture.tensors.activations import outputs
from steadytrain.capture.tensors.activations.outputs import look, look_by_kernel
from steadytrain.capture.tensors.statistics import HISTOGRAM_COLUMNS, TensorWatch, log2_histogram, passes, triton_kernel
from steadytrain.capture.tensors.statistics.histogram import count_bins

# The interpreter computes in NumPy, which warns of what the kernel looks for.
pytestmark = [
    pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning"),  # Triton 3.2
]

CPU = torch.device("cpu")
HALVES_AND_FLOATS = tuple(triton_kernel.DTYPES)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_kernel, "CHUNK", 512)
    monkeypatch.setattr(triton_kernel, "_LANES", 128)


def summarise(many: list[Tensor], *, histogram: bool = True) -> triton_kernel.Summaries:
    return triton_kernel.Table([tensor.numel() for tensor in many], many[0].dtype, CPU).summarise(
        many, histogram=histogram
    )


def agrees(found: triton_kernel.Summaries, many: list[Tensor]) -> None:
    assert found.histogram is not None
    for at, tensor in enumerate(many):
        squares, smallest, largest, total, nonfinite, finite = found.partials[at].tolist()
        expected = truth(tensor)
        assert (nonfinite, nonfinite + finite) == (expected.nonfinite, expected.count)
        assert math.sqrt(squares) == pytest.approx(expected.norm, rel=1e-5, abs=1e-48)
        if finite:
            assert (smallest, largest) == (expected.smallest, expected.largest)
            assert total / finite == pytest.approx(expected.mean, abs=1e-5 * expected.size + 1e-45)
        assert torch.equal(found.histogram[at], count_bins(tensor))


@given(data=st.data(), dtype=st.sampled_from(HALVES_AND_FLOATS))
@settings(max_examples=30, deadline=None)
def test_any_tensors(data: st.DataObject, dtype: torch.dtype) -> None:
    layouts = ("contiguous", "transposed", "0-d", "channels last")
    many = data.draw(st.lists(tensors(dtypes=(dtype,), layouts=layouts).filter(Tensor.numel), min_size=1, max_size=4))
    dense, rest = passes.split_dense(dict(enumerate(many)))
    assert not rest
    agrees(summarise(list(dense.values())), many)


@pytest.mark.parametrize("dtype", HALVES_AND_FLOATS, ids=str)
def test_many_chunks(dtype: torch.dtype) -> None:
    sizes = [triton_kernel.CHUNK * 2 + 3, 1, triton_kernel.CHUNK, 200, triton_kernel.CHUNK - 1]
    generator = torch.Generator().manual_seed(0)
    many = [(torch.randn(size, generator=generator) * 10.0 ** (at - 3)).to(dtype) for at, size in enumerate(sizes)]
    many[0][-1], many[3][7] = math.inf, math.nan
    agrees(summarise(many), many)
    again = summarise(many)
    assert torch.equal(again.partials, summarise(many).partials)


def test_tensors_that_move_are_found() -> None:
    sizes = [7000, 300]
    table = triton_kernel.Table(sizes, torch.float32, CPU)
    for seed in range(3):
        many = [torch.randn(size, generator=torch.Generator().manual_seed(seed)) for size in sizes]
        found = table.summarise(many, histogram=False)
        assert found.histogram is None
        assert found.partials[:, 0].sqrt().tolist() == pytest.approx([float(tensor.norm()) for tensor in many])


def test_it_proves_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # chunks as they are on a GPU
    assert triton_kernel.works_on(CPU)
    monkeypatch.setattr(
        triton_kernel, "count_bins", lambda tensor: torch.zeros(len(HISTOGRAM_COLUMNS), dtype=torch.int64)
    )
    assert not triton_kernel.works_on(CPU)


@pytest.mark.parametrize("histogram", [True, False])
@pytest.mark.parametrize("dtype", HALVES_AND_FLOATS, ids=str)
def test_an_output_of_a_module_looks_the_same_with_the_kernel(dtype: torch.dtype, histogram: bool) -> None:
    values = torch.randn(3, 500, generator=torch.Generator().manual_seed(0)).relu().to(dtype)
    expected = look(values, histogram=histogram)
    found = look_by_kernel(values, values, triton_kernel.Table, histogram=histogram)
    assert found.values.tolist() == pytest.approx(expected.values.tolist(), rel=1e-5)
    assert (found.bins is None) == (expected.bins is None) == (not histogram)
    if found.bins is not None and expected.bins is not None:
        assert torch.equal(found.bins, expected.bins)


def test_a_reading_is_the_same_with_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the road of a GPU but the copy to the host."""
    readings = []
    for road in (None, triton_kernel):
        if road is not None:
            monkeypatch.setattr(passes, "kernel_for", lambda device, note: triton_kernel.Table)
            monkeypatch.setattr(
                "steadytrain.capture.tensors.statistics.histogram.kernel_for", lambda device, note: triton_kernel.Table
            )
        generator = torch.Generator().manual_seed(0)
        shapes = [(60, 50), (7,), (3, 0), (40, 8)]
        parameters = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator) * 1e-3
        parameters[3].grad[::2] = 1e-41  # type: ignore[index]
        optimizer = torch.optim.AdamW(parameters)
        watch = TensorWatch([str(at) for at in range(len(shapes))], parameters)
        for _ in range(2):
            watch.before_update()
            optimizer.step()
            reading = watch.after_update([optimizer]).result()
        histograms = log2_histogram([("weight", parameters[0])], size_max=1 << 20).result()
        readings.append((reading, histograms))
    (expected, expected_bins), (found, found_bins) = readings
    assert found.values == pytest.approx(expected.values, rel=1e-5, abs=1e-9, nan_ok=True)
    assert found.values[3, found.columns.index("gradient_subnormal_share")] == 0.5
    assert np.array_equal(found_bins.values, expected_bins.values)


def test_a_table_for_outputs_is_made_once_for_each_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "_TABLES", {})
    monkeypatch.setattr(outputs, "TABLES_MAX", 2)
    norms = []
    for seed, size in enumerate([700, 300, 700, 300, 90]):
        values = torch.randn(size, generator=torch.Generator().manual_seed(seed))
        found = look_by_kernel(values, values, triton_kernel.Table, histogram=False)
        norms.append((float(found.values[0].sqrt()), float(values.norm())))
    assert all(found == pytest.approx(expected) for found, expected in norms)
    assert [key[1] for key in outputs._TABLES] == [300, 90]
