"""Targets far from the predictions, in units of their spread."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor, nn

from steadytrain.capture.looks.loss_graph import read_graph

ROWS = 32


def found(targets: Tensor, loss: Callable[[Tensor, Tensor], Tensor] = F.mse_loss) -> dict[str, float]:
    torch.manual_seed(0)
    shown = read_graph(loss(nn.Linear(4, 1)(torch.randn(ROWS, 4)), targets)).misuses
    return {name: value for name, value in shown.items() if name in ("far-targets", "their-predictions")}


def test_far() -> None:
    prices = 2.5e5 + 1e4 * torch.randn(ROWS, 1)
    for loss in (F.mse_loss, lambda scores, targets: F.mse_loss(targets, scores)):
        shown = found(prices, loss)
        assert shown["far-targets"] == pytest.approx(2.5e5, rel=0.05)
        assert abs(shown["their-predictions"]) < 2.0


def test_near() -> None:
    assert found(torch.randn(ROWS, 1)) == {}
    assert found(4e4 * torch.randn(ROWS, 1) + 1e5) == {}
    assert found(torch.full((ROWS, 1), 9.0), F.l1_loss) == {}
