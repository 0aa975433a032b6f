"""What a guess costs by the labels of a binary cross entropy."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from steadytrain.capture.looks.binary_labels import Binary, BinaryLabels
from steadytrain.capture.looks.loss_graph import read_graph

LOGITS = functional.binary_cross_entropy_with_logits


def graph_of(
    targets: Tensor, loss: Callable[..., Tensor] = functional.binary_cross_entropy_with_logits
) -> list[Binary]:
    torch.manual_seed(0)
    scores = torch.randn(targets.shape, requires_grad=True)
    given = scores if "logits" in loss.__name__ else scores.sigmoid()
    return read_graph(loss(given, targets.float())).binary


def entropy(share: float) -> float:
    return -(share * math.log(share) + (1 - share) * math.log(1 - share))


@pytest.mark.parametrize("loss", [functional.binary_cross_entropy, functional.binary_cross_entropy_with_logits])
@pytest.mark.parametrize("shape", [(160,), (160, 1)])
def test_one_label_a_row(shape: tuple[int, ...], loss: Callable[..., Tensor]) -> None:
    targets = (torch.arange(160) % 8 == 0).float().reshape(shape)
    (found,) = graph_of(targets, loss)
    rows = dict(BinaryLabels().rows([found]))
    torch.manual_seed(0)
    cost = functional.binary_cross_entropy_with_logits(torch.randn(shape), targets)
    assert rows == {
        "classes": 2.0,
        "likelihood": pytest.approx(float(cost), rel=1e-5),
        "label-entropy": pytest.approx(entropy(1 / 8) + 1 / 320),
    }


def test_several_labels_a_row_are_counted_apart_over_the_looks() -> None:
    labels = BinaryLabels()
    targets = torch.stack([torch.arange(40) % 2, torch.arange(40) % 10 == 0, torch.zeros(40)], 1)
    first, second = (dict(labels.rows(graph_of(targets))) for _ in range(2))
    assert "label-entropy" not in first
    assert second["label-entropy"] == pytest.approx((math.log(2) + entropy(0.1) + 1 / 160) / 3)


@pytest.mark.parametrize(
    "targets",
    [
        torch.full((64,), 0.9),
        torch.ones(64),  # a discriminator's half
        torch.zeros(64, 3),
        torch.tensor([0.0, 1.0]),
    ],
)
def test_soft_labels_single_labels_and_few_say_nothing(targets: Tensor) -> None:
    assert dict(BinaryLabels().rows(graph_of(targets))) == {}


def test_two_losses_and_weights_say_nothing() -> None:
    targets = (torch.arange(64) % 2).float()
    found = graph_of(targets)
    assert dict(BinaryLabels().rows([*found, *found])) == {}
    scores = torch.randn(64, requires_grad=True)
    for weights in ({"weight": torch.ones(64)}, {"pos_weight": torch.tensor(3.0)}):
        loss = functional.binary_cross_entropy_with_logits(scores, targets, **weights)
        assert read_graph(loss).binary == []
