"""What is measured of outputs, attention and logits, against NumPy and torch in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor, nn
from torch.nn import functional

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


class Around(nn.Module):
    def __init__(self, inner: nn.Module, calls: int = 1) -> None:
        super().__init__()
        self.inner, self.calls = inner, calls

    def forward(self, *args: Any) -> None:
        for _ in range(self.calls):
            self.inner(*args)


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


# -- attention ---------------------------------------------------------------------------------------------------------


class Attends(nn.Module):
    def __init__(self, **how: Any) -> None:
        super().__init__()
        self.how = how

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(query, key, value, **self.how)


def heads_of(model: nn.Module, *args: Tensor, row: str = "inner") -> tuple[float, float, float]:
    around = Around(model)
    reading = measure(around, lambda: around(*args)).modules
    entropy, lowest, largest = (
        cell(reading, row, column) for column in ("attention_entropy", "attention_entropy_min", "attention_logit_max")
    )
    return entropy, lowest, largest


def expected_heads(scores: Tensor) -> tuple[float, float, float]:
    """Of all queries: ``(batch, heads, queries, keys)`` in float64, hidden ones at -inf."""
    share = scores.softmax(-1)
    entropy = -torch.where(share > 0, share * share.log(), 0.0).sum(-1).mean((0, 2))
    return float(entropy.mean()), float(entropy.min()), float(scores.max())


SHORT = (2, 3, 5, 8)  # so short that every query is looked at


@pytest.mark.parametrize("kind", ["plain", "causal", "scale", "boolean mask", "float mask", "grouped", "one matrix"])
def test_attention_by_queries_and_keys(kind: str) -> None:
    query, key, value = torch.randn(*SHORT), torch.randn(2, 3, 7, 8), torch.randn(2, 3, 7, 8)
    how: dict[str, Any] = {}
    bias = torch.zeros(5, 7, dtype=torch.float64)
    scale = 8**-0.5
    if kind == "causal":
        how, bias = {"is_causal": True}, torch.where(torch.ones(5, 7).tril() > 0, 0.0, -INF).double()
    elif kind == "scale":
        how, scale = {"scale": 2.0}, 2.0
    elif kind == "boolean mask":
        mask = torch.rand(2, 1, 5, 7) > 0.4
        mask[..., 0] = True
        how, bias = {"attn_mask": mask}, torch.where(mask, 0.0, -INF).double()
    elif kind == "float mask":
        mask = torch.randn(5, 7)
        how, bias = {"attn_mask": mask}, mask.double()
    elif kind == "grouped":
        query = torch.randn(2, 6, 5, 8)
        how = {"enable_gqa": True}
    elif kind == "one matrix":
        query, key, value = query[0], key[0], value[0]
    groups = query.shape[-3] // key.shape[-3]
    scores = query.double() @ key.double().repeat_interleave(groups, -3).transpose(-1, -2) * scale + bias
    assert heads_of(Attends(**how), query, key, value) == pytest.approx(
        expected_heads(scores.reshape(-1, *scores.shape[-3:])), rel=1e-5
    )


def test_long_attention_is_sampled_and_stays_near() -> None:
    query, key = torch.randn(8, 4, 300, 16), torch.randn(8, 4, 300, 16)
    entropy, lowest, largest = heads_of(Attends(), query, key, key)
    expected = expected_heads(query.double() @ key.double().transpose(-1, -2) / 4)
    assert entropy == pytest.approx(expected[0], rel=0.02)
    assert lowest == pytest.approx(expected[1], rel=0.05)
    assert 0.5 * expected[2] < largest <= expected[2] + 1e-4


def test_a_query_that_sees_nothing_has_no_entropy() -> None:
    scores = torch.zeros(1, 2, 3, 4)
    scores[0, 0, 1] = -INF
    scores[0, 1] = -INF

    class Softmax(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return functional.softmax(x, dim=-1).nan_to_num()

    entropy, lowest, largest = heads_of(Softmax(), scores)
    assert (entropy, lowest, largest) == pytest.approx((math.log(4), math.log(4), 0.0))


@pytest.mark.parametrize("how", ["function", "torch", "method", "module"])
def test_attention_by_its_softmax(how: str) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.softmax = nn.Softmax(dim=-1)

        def forward(self, scores: Tensor) -> Tensor:
            if how == "function":
                return functional.softmax(scores, -1, dtype=torch.float32)
            if how == "torch":
                return torch.softmax(scores, dim=3)
            return scores.softmax(-1) if how == "method" else self.softmax(scores)

    scores = torch.randn(2, 3, 5, 7)
    found = heads_of(Own(), scores, row="inner.softmax" if how == "module" else "inner")
    assert found == pytest.approx(expected_heads(scores.double()), rel=1e-5)


def test_a_head_of_its_own_has_scores_of_three_dimensions() -> None:
    class Head(nn.Module):
        def forward(self, scores: Tensor) -> Tensor:
            return functional.softmax(scores, dim=-1)

    scores = torch.randn(3, 5, 5)
    assert heads_of(Head(), scores) == pytest.approx(expected_heads(scores[None].double()), rel=1e-5)
    classes = torch.randn(3, 5, 7)
    head = Head()
    assert math.isnan(cell(measure(head, lambda: head(classes)).modules, "", "attention_entropy"))


def test_a_softmax_that_is_no_attention_is_left_alone() -> None:
    class Router(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.softmax(x, -1) + functional.softmax(x, 1)

    router = Router()
    reading = measure(router, lambda: router(torch.randn(4, 6, 8))).modules
    assert math.isnan(cell(reading, "", "attention_entropy"))


@pytest.mark.parametrize("need_weights", [True, False])
def test_multihead_attention(need_weights: bool) -> None:
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(1, 5, 8)

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = attention

        def forward(self, x: Tensor) -> Tensor:
            return self.attention(x, x, x, need_weights=need_weights)[0]

    with torch.no_grad():
        projected = functional.linear(x, attention.in_proj_weight, attention.in_proj_bias)
    query, key, _ = projected.double().chunk(3, -1)
    split = [part.view(1, 5, 2, 4).transpose(1, 2) for part in (query, key)]
    expected = expected_heads(split[0] @ split[1].transpose(-1, -2) / 2)
    assert heads_of(Own(), x, row="inner.attention") == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_attention_of_transformers(implementation: str) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        attn_implementation=implementation,
    )
    model = transformers.LlamaForCausalLM(config)
    ids = torch.randint(50, (2, 6))
    found = measure(model, lambda: model(input_ids=ids, labels=ids))
    entropy = cell(found.modules, "model.layers.0.self_attn", "attention_entropy")
    assert 0.5 < entropy < math.log(6)  # near what uniform attention over 1 to 6 keys has
    assert entropy == pytest.approx(np.mean([math.log(keys) for keys in range(1, 7)]), rel=0.1)
    assert cell(found.modules, "", "log_z_mean") == pytest.approx(math.log(50), rel=0.05)
    assert found.logits == "float32"


# -- logits ------------------------------------------------------------------------------------------------------------


class Classifier(nn.Module):
    def __init__(self, classes: int, wrap: Any = lambda logits: logits) -> None:
        super().__init__()
        self.head, self.wrap = nn.Linear(4, classes), wrap

    def forward(self, x: Tensor) -> Any:
        return self.wrap(self.head(x))


@pytest.mark.parametrize("way", ["cross entropy", "mapping", "large", "images"])
def test_log_z(way: str) -> None:
    model: nn.Module = Classifier(
        1000 if way == "large" else 7, (lambda y: {"logits": y}) if way == "mapping" else nn.Identity()
    )
    x = torch.randn(5, 4)
    targets = torch.randint(7, (5,))

    def train() -> None:
        output = model(x)
        if way == "cross entropy":
            functional.cross_entropy(output, targets)
        if way == "images":
            functional.cross_entropy(output.view(5, 7, 1, 1), targets.view(5, 1, 1))

    found = measure(model, train)
    log_z = torch.logsumexp(model.head(x).detach().double(), -1)
    assert cell(found.modules, "", "log_z_mean") == pytest.approx(float(log_z.mean()), rel=1e-5)
    assert cell(found.modules, "", "log_z_max") == pytest.approx(float(log_z.max()), rel=1e-5)
    assert found.logits == ("float32" if way in ("mapping", "large") else None)
    assert found.loss_input == ("float32" if way in ("cross entropy", "images") else None)


def test_many_rows_of_logits_are_sampled() -> None:
    model = Classifier(3000)
    x = torch.randn(64, 50, 4)
    found = measure(model, lambda: model(x.transpose(0, 1)))
    log_z = torch.logsumexp(model.head(x).detach().double(), -1)
    assert cell(found.modules, "", "log_z_mean") == pytest.approx(float(log_z.mean()), abs=0.05)


def test_small_outputs_are_no_logits() -> None:
    model = Classifier(7)
    assert math.isnan(cell(measure(model, lambda: model(torch.randn(5, 4))).modules, "", "log_z_mean"))
