"""Class weights that grow with the counts, and others."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor, nn

from steadytrain.capture.looks.class_weights import weights_as_counts
from steadytrain.capture.looks.label_counts import LabelCounts
from steadytrain.capture.looks.loss_graph import read_graph

COUNTS = torch.tensor([800.0, 120.0, 60.0, 20.0])


def shown(weight: Tensor | None, counts: Tensor = COUNTS) -> dict[str, float]:
    return dict(weights_as_counts([int(n) for n in counts], weight))


def test_weights_that_grow_with_the_counts() -> None:
    assert shown(COUNTS / COUNTS.sum()) == {"weights-as-counts": pytest.approx(40.0)}
    assert shown(COUNTS.sqrt()) == {"weights-as-counts": pytest.approx(40.0**0.5)}
    assert shown(torch.tensor([0.9, 0.1]), torch.tensor([900.0, 100.0])) == {"weights-as-counts": pytest.approx(9.0)}


@pytest.mark.parametrize(
    ("weight", "counts"),
    [
        (None, COUNTS),
        (1.0 / COUNTS, COUNTS),
        (torch.ones(4), COUNTS),
        (torch.tensor([1.0, 0.2, 3.0, 0.5]), COUNTS),
        (torch.tensor([0.0, 1.0, 1.0, 1.0]), COUNTS),
        (torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([260.0, 250.0, 250.0, 240.0])),
        (torch.tensor([2.0, 1.0]), torch.tensor([990.0, 10.0])),
        (torch.tensor([1.2, 1.0]), torch.tensor([600.0, 400.0])),
        (COUNTS, torch.tensor([900.0, 100.0, 0.0, 0.0])),
    ],
    ids=["none", "inverse", "equal", "other", "one class left out", "balanced", "a cost", "mild", "classes not seen"],
)
def test_other_weights(weight: Tensor | None, counts: Tensor) -> None:
    assert shown(weight, counts) == {}


def test_the_labels_of_a_loss() -> None:
    torch.manual_seed(0)
    labels = torch.multinomial(COUNTS, 400, replacement=True)
    scores = nn.Linear(5, 4)(torch.randn(400, 5))
    found = []
    for weight in (COUNTS / COUNTS.sum(), COUNTS.sum() / COUNTS):
        (likelihood,) = read_graph(F.cross_entropy(scores, labels, weight=weight)).likelihoods
        found.append("weights-as-counts" in dict(LabelCounts().rows(likelihood)))
    assert found == [True, False]


def of_positives(share: float, weight: float | None) -> bool:
    torch.manual_seed(0)
    targets = (torch.rand(500, 1) < share).float()
    given = None if weight is None else torch.tensor(weight)
    loss = F.binary_cross_entropy_with_logits(nn.Linear(5, 1)(torch.randn(500, 5)), targets, pos_weight=given)
    return "pos-weight-as-odds" in read_graph(loss).misuses


def test_the_weight_of_positives() -> None:
    assert of_positives(0.1, 1.0 / 9.0)
    assert not any([of_positives(0.1, 9.0), of_positives(0.1, None), of_positives(0.1, 1.0), of_positives(0.6, 1.5)])
