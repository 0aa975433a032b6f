"""Places that a slice leaves out at the front of scores, read from the graph."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor

from steadytrain.capture.looks.graph_nodes import dropped_in_front, inputs_of_node

CLASSES = 5


def scores(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True) * 2.0


@pytest.mark.parametrize(
    ("given", "dropped"),
    [
        (lambda: scores(3, 7, CLASSES).flatten(0, 1), 0),
        (lambda: scores(3, 7, CLASSES)[:, 1:].flatten(0, 1), 1),
        (lambda: scores(3, 7, CLASSES)[:, 1:][:, 1:].reshape(-1, CLASSES), 2),
        (lambda: scores(3, 7, CLASSES)[:, :-1].reshape(-1, CLASSES), 0),
        (lambda: scores(3, 7, CLASSES)[1:].reshape(-1, CLASSES), 0),
        (lambda: scores(3, 7, CLASSES + 1)[:, :, 1:].reshape(-1, CLASSES), 0),
        (lambda: scores(3, CLASSES + 1, 7)[:, 1:].mT.reshape(-1, CLASSES), 0),  # a class less, not a place
    ],
)
def test_places_in_front(given: object, dropped: int) -> None:
    made = given()  # type: ignore[operator]
    loss = F.nll_loss(F.log_softmax(made, -1), torch.zeros(len(made), dtype=torch.long))
    assert inputs_of_node(loss.grad_fn)
    assert dropped_in_front(loss.grad_fn, CLASSES) == dropped
