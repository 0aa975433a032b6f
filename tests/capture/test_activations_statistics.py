"""What is measured of outputs, against NumPy and torch in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from measured_outputs import Around
from torch import Tensor, nn

from hard_tensors import INF, NAN, tensors, truth, values_of
from measuring import cell, measure
from steadytrain.capture.tensors.activations import COLUMNS, DTYPES, Taken
from steadytrain.capture.tensors.statistics import HISTOGRAM_COLUMNS


class Gives(nn.Module):
    """A module that puts out what it was made with."""

    def __init__(self, *outputs: Any) -> None:
        super().__init__()
        self.outputs = outputs
        self.calls = 0

    def forward(self) -> Any:
        self.calls += 1
        return self.outputs[(self.calls - 1) % len(self.outputs)]


def taken(*outputs: Any, calls: int | None = None, histograms: bool = False) -> Taken:
    model = Around(Gives(*outputs), calls or len(outputs))
    anchor = nn.Linear(1, 1)  # something that is always seen
    return measure(nn.ModuleList([model, anchor]), lambda: (model(), anchor(torch.ones(1))), histograms=histograms)


def row_of(*outputs: Any, calls: int | None = None) -> dict[str, float]:
    reading = taken(*outputs, calls=calls).modules
    if "0.inner" not in reading.rows:
        return {}
    return {column: cell(reading, "0.inner", column) for column in COLUMNS}


@settings(max_examples=60)
@given(tensors())
def test_mean_extremes_and_finiteness_are_exact(tensor: Tensor) -> None:
    row, expected = row_of(tensor), truth(tensor)
    if not tensor.numel():
        assert not row
        return
    assert row["nonfinite"] == expected.nonfinite
    assert DTYPES[int(row["dtype"])] == str(tensor.dtype).removeprefix("torch.")
    if expected.nonfinite == expected.count:
        assert math.isnan(row["mean"])
        assert math.isnan(row["abs_max"])
        return
    with np.errstate(over="ignore"):
        largest = np.float32(max(abs(expected.smallest), abs(expected.largest)))
        assert row["abs_max"] == pytest.approx(float(largest), rel=1e-6)
        assert row["mean"] == pytest.approx(expected.mean, rel=1e-5, abs=max(1e-5 * expected.size, 1e-44))
    assert row["headroom"] == pytest.approx(
        float(largest) / torch.finfo(tensor.dtype).max, rel=1e-5, abs=1e-44
    ) or not math.isfinite(largest)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("offset", [0.0, 3.0, 200.0])
def test_deviation_kurtosis_and_zeros(dtype: torch.dtype, offset: float) -> None:
    tensor = (torch.randn(300, 700, dtype=torch.float64) ** 3 + offset).to(dtype)
    tensor[::3] = 0.0
    row, values = row_of(tensor), values_of(tensor)
    around = values - values.mean()
    assert row["std"] == pytest.approx(values.std(), rel=0.06 if offset > 30 * values.std() else 1e-4)
    assert row["zero_share"] == pytest.approx((values == 0).mean(), abs=0.03)
    assert row["kurtosis"] == pytest.approx((around**4).mean() / values.var() ** 2, rel=0.6)


def test_small_outputs_are_not_sampled() -> None:
    tensor = torch.tensor([0.0, 1.0, 2.0, 3.0, 0.0, 5.0, NAN, -INF])
    row, values = row_of(tensor), np.array([0.0, 1.0, 2.0, 3.0, 0.0, 5.0])
    around = values - values.mean()
    assert row["nonfinite"] == 2
    assert row["zero_share"] == 0.25
    assert row["std"] == pytest.approx(values.std())
    assert row["kurtosis"] == pytest.approx((around**4).mean() / values.var() ** 2)


def test_a_mean_far_from_zero_does_not_drown_the_deviation() -> None:
    row = row_of(torch.randn(1000, 500) + 3000.0)
    assert row["mean"] == pytest.approx(3000.0, rel=1e-5)
    assert row["std"] == pytest.approx(1.0, rel=0.03)


def test_several_calls_are_one_row() -> None:
    outputs = [torch.randn(50) + at for at in range(3)]
    row, together = row_of(*outputs), torch.cat(outputs).double().numpy()
    assert row["mean"] == pytest.approx(together.mean(), rel=1e-5)
    assert row["std"] == pytest.approx(together.std(), rel=1e-5)
    assert row["abs_max"] == pytest.approx(np.abs(together).max())


def test_of_many_calls_the_first_ones_count() -> None:
    row = row_of(torch.ones(3), torch.tensor([NAN]), calls=100)
    assert row["nonfinite"] == 4  # every second one of eight


@pytest.mark.parametrize(
    ("output", "abs_max"),
    [
        ((torch.tensor([1, 2]), [None, torch.tensor([3.0])]), 3.0),
        ({"loss": None, "hidden": {"last": (torch.tensor([-4.0]),)}}, 4.0),
        (torch.tensor([3 + 4j]), 4.0),
        (torch.sparse_coo_tensor([[0, 2]], [5.0, 0.0], (9,), check_invariants=True), 5.0),
        (torch.ones(4).to(torch.float8_e4m3fn), 1.0),
        (nn.Parameter(torch.tensor(-2.0)), 2.0),
    ],
    ids=["nested", "mapping", "complex", "sparse", "float8", "parameter"],
)
def test_outputs_of_all_kinds(output: Any, abs_max: float) -> None:
    assert row_of(output)["abs_max"] == abs_max


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_with_numbers_that_are_not_finite(dtype: torch.dtype) -> None:
    tensor = torch.randn(40, 50).mul(3).to(dtype)
    tensor[::5, 3], tensor[1, ::7], tensor[2] = NAN, INF, 0.0
    row, values = row_of(tensor), values_of(tensor)
    finite = values[np.isfinite(values)]
    around = finite - finite.mean()
    assert row["nonfinite"] == values.size - finite.size
    assert row["mean"] == pytest.approx(finite.mean(), rel=1e-5)
    assert row["std"] == pytest.approx(finite.std(), rel=1e-5)
    assert row["abs_max"] == np.abs(finite).max()
    assert row["kurtosis"] == pytest.approx((around**4).mean() / finite.var() ** 2, rel=1e-5)
    assert row["zero_share"] == pytest.approx((values == 0).mean(), rel=1e-5)
    assert row["headroom"] == pytest.approx(np.abs(finite).max() / torch.finfo(dtype).max, rel=1e-5)


@dataclass
class Answer:
    text: str
    hidden: Tensor


def test_a_dataclass_as_output() -> None:
    assert row_of(Answer("no number", torch.tensor([2.0, -6.0])))["abs_max"] == 6.0


@pytest.mark.slow
def test_a_model_output_of_transformers() -> None:
    outputs = pytest.importorskip("transformers.modeling_outputs")
    output = outputs.BaseModelOutputWithPast(last_hidden_state=torch.tensor([2.0, -6.0]))
    assert row_of(output)["abs_max"] == 6.0


def test_a_shared_module_is_one_row_by_its_first_name() -> None:
    class Sharing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Linear(3, 3, bias=False)
            self.again = self.one

        def forward(self, x: Tensor) -> Tensor:
            return self.again(self.one(x))

    model, x = Sharing(), torch.randn(4, 3)
    reading = measure(model, lambda: model(x)).modules
    weight = model.one.weight.detach().double()
    first = x.double() @ weight.T
    both = torch.cat([first, first @ weight.T]).numpy()
    assert reading.rows == ("", "one")
    assert cell(reading, "one", "mean") == pytest.approx(both.mean(), rel=1e-4)
    assert cell(reading, "one", "std") == pytest.approx(both.std(), rel=1e-5)


def test_a_part_without_gradients_is_seen_and_an_evaluation_is_not() -> None:
    class Frozen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.head = nn.Linear(2, 2), nn.Linear(2, 1)

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                hidden = self.encoder(x)
            return self.head(hidden)

    model, x = Frozen(), torch.randn(3, 2)

    def train() -> None:
        for off in (torch.no_grad, torch.inference_mode):
            with off():
                model(x * 1e6)
        model(x)
        with torch.no_grad():
            model(x * 1e6)

    reading = measure(model, train).modules
    expected = model.encoder(x).detach().double().abs().max()
    assert cell(reading, "encoder", "abs_max") == pytest.approx(float(expected), rel=1e-6)
    assert cell(reading, "", "abs_max") == pytest.approx(float(model(x).detach().abs().max()), rel=1e-5)


@pytest.mark.parametrize(
    "output",
    [
        None,
        "text",
        torch.ones(3, dtype=torch.int64),
        torch.zeros(0),
        torch.ones(2, device="meta"),
        [[[[[[torch.ones(1)]]]]]],
        object(),
    ],
    ids=["none", "text", "integers", "empty", "meta", "too deep", "object"],
)
def test_outputs_without_numbers_have_no_row(output: Any) -> None:
    assert not row_of(output)


@pytest.mark.filterwarnings("ignore:.*quantize")  # deprecated, and still in use
def test_quantised_outputs_have_no_row() -> None:
    assert not row_of(torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8))


def test_histograms() -> None:
    reading = taken(torch.tensor([0.0, 1.5, -1.0, 3.0]), torch.tensor([0.25, INF]), histograms=True).histograms
    assert reading is not None
    shares = dict(zip(HISTOGRAM_COLUMNS, reading.values[reading.rows.index("activation:0.inner")], strict=True))
    expected = {"zero": 1, "2^0": 2, "2^1": 1, "2^-2": 1, "nonfinite": 1}
    assert {name: share for name, share in shares.items() if share} == pytest.approx(
        {name: count / 6 for name, count in expected.items()}
    )
    assert taken(torch.ones(3)).histograms is None
