"""Several labels a row in a softmax cross-entropy, and losses that look so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor, nn

from steadytrain.capture.looks.loss_graph import read_graph

ROWS, CLASSES = 64, 6


def share(loss: Callable[[Tensor], Tensor]) -> float | None:
    torch.manual_seed(0)
    return read_graph(loss(nn.Linear(8, CLASSES)(torch.randn(ROWS, 8)))).misuses.get("many-hot")


def several() -> Tensor:
    return (torch.rand(ROWS, CLASSES) < 0.4).float()


def one_hot() -> Tensor:
    return F.one_hot(torch.arange(ROWS) % CLASSES, CLASSES).float()


def test_several_labels() -> None:
    assert (share(lambda s: F.cross_entropy(s, several())) or 0.0) > 0.5
    assert (share(lambda s: F.cross_entropy(s, several(), reduction="sum")) or 0.0) > 0.5
    places = torch.zeros(4, 6, 16)
    places[:, :2] = 1.0
    assert share(lambda s: F.cross_entropy(s.reshape(4, 16, 6).transpose(1, 2), places)) == 1.0


def products(s: Tensor) -> Tensor:
    same = (torch.arange(ROWS) % 4)[:, None] == (torch.arange(ROWS) % 4)[None]
    return F.cross_entropy(s @ s.T, same.float())


LIKE: dict[str, Callable[[Tensor], Tensor]] = {
    "one-hot": lambda s: F.cross_entropy(s, one_hot()),
    "ids": lambda s: F.cross_entropy(s, torch.arange(ROWS) % CLASSES),
    "smoothed": lambda s: F.cross_entropy(s, one_hot(), label_smoothing=0.1),
    "mixed": lambda s: F.cross_entropy(s, 0.6 * one_hot() + 0.4 * one_hot().flip(0)),
    "distilled": lambda s: F.cross_entropy(s, torch.randn(ROWS, CLASSES).softmax(1)),
    "some rows without a label": lambda s: F.cross_entropy(s, one_hot() * (torch.arange(ROWS) % 3 > 0)[:, None]),
    "a likelihood of whole rows": lambda s: -(s.log_softmax(1) * several()).sum(1).mean(),
    "divided by its ones": lambda s: F.cross_entropy(s, several() / several().sum(1, keepdim=True).clamp(min=1)),
    "binary": lambda s: F.binary_cross_entropy_with_logits(s, several()),
    "several positives of a contrastive loss": products,
}


@pytest.mark.parametrize("name", LIKE)
def test_losses_that_look_so(name: str) -> None:
    assert share(LIKE[name]) is None
