"""What a guess costs, by the labels that the looks saw."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from steadytrain.capture.looks.label_counts import LabelCounts, class_rows
from steadytrain.capture.looks.loss_graph import Likelihood, read_graph


def rows(labels: Tensor, classes: int) -> dict[str, float]:
    found = dict(LabelCounts().rows(Likelihood(labels, -100, classes)))
    return {name: value for name, value in found.items() if name != "batch-class"}


def test_classes_and_entropy() -> None:
    labels = torch.tensor([0, 1, 1, 1] * 10 + [-100] * 7)
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert rows(labels, 4) == {"classes": 4.0, "label-entropy": pytest.approx(entropy + 1 / 80)}


def test_few_labels_have_no_entropy() -> None:
    assert rows(torch.arange(16) % 10, 10) == {"classes": 10.0}


def test_the_looks_add_up() -> None:
    counts = LabelCounts()
    for _ in range(3):
        assert dict(counts.rows(Likelihood(torch.zeros(30).long() + torch.arange(30) % 2, -100, 3)))
    one = dict(counts.rows(Likelihood(torch.tensor([2] * 45 + [0, 1] * 0 + [0] * 1), -100, 3)))
    assert one["label-entropy"] == pytest.approx(math.log(3))


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (torch.arange(16), 16),  # pairs
        (torch.arange(16) + 15, 31),  # two views of each row
        (torch.zeros(16).long(), 4097),  # the first of many keys
        (torch.tensor([0, 1, 1]), 3),
        (torch.arange(16) % 2, 1),
    ],
)
def test_labels_that_are_places_or_too_few(labels: Tensor, classes: int) -> None:
    assert rows(labels, classes) == {}


@pytest.mark.parametrize(
    ("shape", "labels"), [((6, 3), (6,)), ((2, 3, 5), (2, 5)), ((2, 3, 4, 4), (2, 4, 4)), ((3,), ())]
)
def test_the_classes_of_a_graph(shape: tuple[int, ...], labels: tuple[int, ...]) -> None:
    scores = torch.randn(shape, requires_grad=True)
    (found,) = read_graph(torch.nn.functional.cross_entropy(scores, torch.zeros(labels).long())).likelihoods
    assert found.classes == 3


@pytest.mark.parametrize("shape", [(40,), (8, 5)])
def test_the_cost_of_a_label(shape: tuple[int, ...]) -> None:
    model = torch.nn.Linear(6, 3)
    scores = model(torch.randn(*shape, 6)).movedim(-1, 1 if len(shape) > 1 else -1)
    labels = torch.arange(40).reshape(shape) % 3
    labels.view(-1)[0] = -100
    cost = torch.nn.functional.cross_entropy(scores, labels)
    for loss in (cost, 7.0 * cost + model.weight.square().sum()):
        (found,) = read_graph(loss).likelihoods
        assert dict(LabelCounts().rows(found))["likelihood"] == pytest.approx(cost.item(), rel=1e-5)


def test_scores_scaled_on_purpose_have_no_cost() -> None:
    scores = 30.0 * torch.tanh(torch.nn.Linear(6, 3)(torch.randn(40, 6)))
    (found,) = read_graph(torch.nn.functional.cross_entropy(scores, torch.arange(40) % 3)).likelihoods
    assert "likelihood" not in dict(LabelCounts().rows(found))


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        (torch.tensor([3] * 15 + [1]), 3.0),
        (torch.arange(16) % 10, -1.0),
        (torch.tensor([2] * 9 + [-100] * 9), 2.0),
        (torch.tensor([2] * 7), None),
        (torch.full((4, 8), 2), None),
    ],
    ids=["nearly alone", "mixed", "ignored labels", "too few", "labels of places"],
)
def test_the_class_that_a_batch_is_of(labels: Tensor, found: float | None) -> None:
    assert dict(class_rows(Likelihood(labels, -100, 10))).get("batch-class") == found
