"""A row of values times a column of weights, and tables that are meant."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor, nn

from steadytrain.capture.looks.loss_graph import read_graph

ROWS = 16
COLUMN, ROW = torch.randn(ROWS, 1), torch.randn(ROWS)


def rows(loss: Callable[[Tensor], Tensor]) -> float | None:
    torch.manual_seed(0)
    return read_graph(loss(nn.Linear(8, 1)(torch.randn(ROWS, 8)))).misuses.get("outer-product")


def surrogate(s: Tensor) -> Tensor:
    ratio = s.squeeze(1).exp()
    return -torch.min(ratio * COLUMN, ratio.clamp(0.8, 1.2) * COLUMN).mean()


TABLES: dict[str, Callable[[Tensor], Tensor]] = {
    "policy gradient": lambda s: -(s.squeeze(1) * COLUMN).mean(),
    "turned before": lambda s: (-s.squeeze(1) * COLUMN).sum(),
    "weights are a row": lambda s: (s * ROW).mean(),
    "surrogate": surrogate,
    "loss per row": lambda s: (
        F.binary_cross_entropy_with_logits(s.squeeze(1), ROW.gt(0).float(), reduction="none") * COLUMN.abs()
    ).mean(),
}
OTHER: dict[str, Callable[[Tensor], Tensor]] = {
    "both are rows": lambda s: (s.squeeze(1) * ROW).mean(),
    "both are columns": lambda s: (s * COLUMN).mean(),
    "both are trained": lambda s: (s * s.squeeze(1)).mean(),
    "a mask of pairs": lambda s: ((s - s.T) * (COLUMN > ROW)).mean(),
    "a column that is made": lambda s: (s.squeeze(1)[:, None] * ROW).mean(),
    "a number": lambda s: (s * 3.0).mean(),
    "pairs that are squashed": lambda s: torch.sigmoid(s * ROW).mean(),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables(name: str) -> None:
    assert rows(TABLES[name]) == ROWS


@pytest.mark.parametrize("name", OTHER)
def test_what_is_meant(name: str) -> None:
    assert rows(OTHER[name]) is None
