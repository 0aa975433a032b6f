"""Over which axis a loss or an attention takes its softmax, as its graph shows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor

from steadytrain.capture.looks.loss_graph import read_graph

Loss = Callable[[Tensor, Tensor], Tensor]


def misuses(loss: Tensor) -> dict[str, float]:
    return read_graph(loss).misuses


def scores(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True) * 1.0


def labels(*shape: int) -> Tensor:
    return torch.randint(3, shape)


WRONG = {
    "rows": lambda: F.nll_loss(scores(6, 3).log_softmax(0), labels(6)),
    "the only default": lambda: F.nll_loss(F.log_softmax(scores(2, 5, 3), 0).view(-1, 3), labels(10)),
    "places": lambda: F.nll_loss(scores(2, 5, 3).log_softmax(1).reshape(-1, 3), labels(10)),
    "before a transpose": lambda: F.nll_loss(scores(3, 6).log_softmax(1).t(), labels(6)),
    "before a permute": lambda: F.nll_loss(scores(2, 5, 3).log_softmax(1).permute(0, 2, 1), labels(2, 5)),
    "images": lambda: F.nll_loss(scores(2, 3, 4, 4).log_softmax(-1), labels(2, 4, 4)),
    "places that count": lambda: F.nll_loss(scores(2, 5, 3).log_softmax(1)[torch.eye(2, 5).bool()], labels(2)),
    "logarithm of it": lambda: F.nll_loss((scores(6, 3).softmax(0) + 1e-9).log(), labels(6)),
    "one picked of each row": lambda: -scores(6, 3).log_softmax(0).gather(1, labels(6)[:, None]).mean(),
}
RIGHT = {
    "cross entropy": lambda: F.cross_entropy(scores(6, 3), labels(6)),
    "smoothed": lambda: F.cross_entropy(scores(2, 3, 5), labels(2, 5), label_smoothing=0.1),
    "one row": lambda: F.nll_loss(scores(3).log_softmax(0), torch.tensor(1)),
    "images": lambda: F.nll_loss(scores(2, 3, 4, 4).log_softmax(1), labels(2, 4, 4)),
    "last axis": lambda: F.nll_loss(scores(2, 5, 3).log_softmax(-1).transpose(1, 2), labels(2, 5)),
    "transposed": lambda: F.nll_loss(scores(3, 6).log_softmax(0).t(), labels(6)),
    "places that count": lambda: F.nll_loss(scores(2, 5, 3).log_softmax(-1)[torch.eye(2, 5).bool()], labels(2)),
    "one place": lambda: F.nll_loss(scores(2, 5, 3).log_softmax(-1)[:, -1], labels(2)),
    "all but the last": lambda: F.nll_loss(scores(2, 5, 3).log_softmax(-1)[:, :-1].reshape(-1, 3), labels(8)),
    "pairs in both directions": lambda: F.nll_loss(scores(6, 6).log_softmax(0), torch.arange(6)),
    "picked": lambda: -scores(6, 3).log_softmax(1).gather(1, labels(6)[:, None]).mean(),
    "places picked": lambda: scores(2, 5, 3).log_softmax(-1).gather(1, labels(2, 1, 3)).mean(),
}


@pytest.mark.parametrize("name", WRONG)
def test_softmax_over_another_axis_than_the_classes(name: str) -> None:
    assert misuses(WRONG[name]()) == {"softmax-dimension": 1.0}


@pytest.mark.parametrize("name", RIGHT)
def test_softmax_over_the_classes(name: str) -> None:
    assert misuses(RIGHT[name]()) == {}


def attended(weights: Callable[[Tensor], Tensor], *, queries: int = 5) -> Tensor:
    return (weights(scores(2, 4, queries, 5)) @ scores(2, 4, 5, 8)).sum()


OVER_QUERIES = {
    "second to last": lambda: attended(lambda one: one.softmax(-2)),
    "heads": lambda: attended(lambda one: one.softmax(1)),
    "dropped out": lambda: attended(lambda one: F.dropout(one.softmax(-2), 0.1)),
    "three dimensions": lambda: (scores(2, 5, 5).softmax(1) @ scores(2, 5, 8)).sum(),
    "einsum": lambda: torch.einsum("bhqk,bhkd->bqhd", scores(2, 4, 5, 5).softmax(-2), scores(2, 4, 5, 8)).sum(),
    "transposed values": lambda: (scores(2, 8, 5) @ scores(2, 5, 5).softmax(1).mT).sum(),
}
OVER_KEYS = {
    "last": lambda: attended(lambda one: one.softmax(-1)),
    "dropped out": lambda: attended(lambda one: F.dropout(one.softmax(-1), 0.1)),
    "slots": lambda: attended(lambda one: one.softmax(-2), queries=3),
    "twice normalised": lambda: attended(lambda one: one.softmax(-2) / one.softmax(-2).sum(-1, keepdim=True)),
    "keys by queries": lambda: attended(lambda one: one.softmax(-2).mT),
    "einsum": lambda: torch.einsum("bhqk,bhkd->bqhd", scores(2, 4, 5, 5).softmax(-1), scores(2, 4, 5, 8)).sum(),
    "linear attention": lambda: (
        scores(2, 8, 8).softmax(-1) @ (scores(2, 8, 8).softmax(-2).mT @ scores(2, 8, 8))
    ).sum(),
    "transposed values": lambda: (scores(2, 8, 5) @ scores(2, 5, 5).softmax(-1).mT).sum(),
}


@pytest.mark.parametrize("name", OVER_QUERIES)
def test_attention_over_the_queries(name: str) -> None:
    assert misuses(OVER_QUERIES[name]()) == {"attention-dimension": 1.0}


@pytest.mark.parametrize("name", OVER_KEYS)
def test_attention_over_the_keys(name: str) -> None:
    assert misuses(OVER_KEYS[name]()) == {}


def test_causal_attention_over_the_queries() -> None:
    hidden = torch.ones(5, 5).triu(1).bool()
    loss = attended(lambda one: one.masked_fill(hidden, float("-inf")).softmax(-2))
    assert misuses(loss) == {"causal-attention-dimension": 1.0}


def _divergence(scores: Tensor, *, logarithm: bool, by_hand: bool = False) -> Tensor:
    given = F.log_softmax(scores, -1) if logarithm else F.softmax(scores, -1)
    target = torch.rand(6, 5).softmax(-1)
    return torch.xlogy(target, target) - target * given if by_hand else F.kl_div(given, target, reduction="sum")


def test_a_divergence_of_probabilities_is_found_and_one_of_logarithms_is_not() -> None:
    layer, rows = torch.nn.Linear(4, 5), torch.randn(6, 4)
    assert misuses(_divergence(layer(rows), logarithm=False)) == {"probabilities-as-logarithms": 1.0}
    assert misuses(_divergence(layer(rows), logarithm=True)) == {}
    assert misuses(_divergence(layer(rows), logarithm=False, by_hand=True).sum()) != {}
    student = F.softmax(layer(rows).view(2, 3, 5), -1).flatten(0, 1)
    teacher = torch.rand(6, 5).softmax(-1)
    assert misuses(F.kl_div(student, teacher, reduction="batchmean")) == {"probabilities-as-logarithms": 1.0}
    gain = (1.0 - layer(rows).softmax(-1) * torch.randn(6, 5)).sum()
    assert misuses(gain) == {}
    hits = (torch.ones(6, 5) - layer(rows).softmax(-1) * torch.ones(6, 5)).sum()
    assert misuses(hits) == {}
