"""How the terms of a loss were reduced, by its graph."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor

from steadytrain.capture.looks.term_weights import TermWeights

ROWS, PIXELS, LATENT = 16, 64, 4
Loss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def divergence(mean: Tensor, spread: Tensor) -> Tensor:
    return -0.5 * (1 + spread - mean.pow(2) - spread.exp())


def heavier(loss: Loss) -> float | None:
    torch.manual_seed(0)
    out = torch.rand(ROWS, PIXELS, requires_grad=True)
    mean, spread = (torch.randn(ROWS, LATENT, requires_grad=True) for _ in range(2))
    read = TermWeights()
    read.read(loss(out.sigmoid(), torch.rand(ROWS, PIXELS), mean, spread), 64)
    found = [value for name, value in read.rows() if name.startswith("summed-term:")]
    return found[0] if found else None


APART: dict[str, Loss] = {
    "sum over a row": lambda out, x, m, s: F.mse_loss(out, x) + divergence(m, s).sum(1).mean(),
    "sum by rows": lambda out, x, m, s: F.binary_cross_entropy(out, x) + divergence(m, s).sum() / ROWS,
    "by hand": lambda out, x, m, s: (out - x).pow(2).mean() + divergence(m, s).sum(-1).mean(0),
    "the other way round": lambda out, x, m, s: divergence(m, s).sum(1).mean() + F.mse_loss(out, x),
}
ALIKE: dict[str, Loss] = {
    "both summed": lambda out, x, m, s: F.mse_loss(out, x, reduction="sum") / ROWS + divergence(m, s).sum() / ROWS,
    "both averaged": lambda out, x, m, s: F.mse_loss(out, x) + divergence(m, s).mean(),
    "no divergence": lambda out, x, m, s: F.mse_loss(out, x) + m.pow(2).sum(1).mean(),
    "alone": lambda out, x, m, s: F.mse_loss(out, x),
}


@pytest.mark.parametrize("name", APART)
def test_a_divergence_that_is_summed_beside_an_average(name: str) -> None:
    found = heavier(APART[name])
    assert found is not None
    assert PIXELS / 2 <= found <= PIXELS


@pytest.mark.parametrize("name", ALIKE)
def test_terms_that_go_together(name: str) -> None:
    assert heavier(ALIKE[name]) is None


def test_a_weight_makes_up_for_it() -> None:
    found = heavier(lambda out, x, m, s: F.mse_loss(out, x) + 0.01 * divergence(m, s).sum(1).mean())
    assert found is not None
    assert found < 1.0
