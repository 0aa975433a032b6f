"""What is measured of attention and logits, against NumPy and torch in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from measured_outputs import Around
from torch import Tensor, nn
from torch.nn import functional

from hard_tensors import INF
from measuring import cell, measure
from steadytrain.capture.tensors.activations import attention
from steadytrain.capture.tensors.activations.measurement import CALLS_MAX

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


@pytest.mark.parametrize("spelling", ["sdpa", "softmax"])
def test_attention_of_a_module_that_is_called_hundreds_of_times_is_computed_only_for_the_calls_that_count(
    monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    computed = []

    def counting(original: Any) -> Any:
        def look(*args: Any, **kwargs: Any) -> Any:
            computed.append(original)
            return original(*args, **kwargs)

        return look

    for name in ("look_at_queries", "look_at_scores"):
        monkeypatch.setattr(attention, name, counting(getattr(attention, name)))

    class SoftmaxAttention(nn.Module):
        def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return (query @ key.mT).softmax(-1) @ value

    class Rollout(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Attends() if spelling == "sdpa" else SoftmaxAttention()

        def forward(self, *rows: Tensor) -> Tensor:
            return torch.stack([self.inner(*rows) for _ in range(50)]).sum()

    model = Rollout()
    rows = [torch.randn(*SHORT, requires_grad=True) for _ in range(3)]
    reading = measure(model, lambda: model(*rows)).modules
    assert math.isfinite(cell(reading, "inner", "attention_entropy"))
    assert len(computed) == CALLS_MAX
