"""Contrastive losses whose rows meet themselves, and those whose rows do not."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor, nn

from steadytrain.capture.looks.loss_graph import read_graph

ROWS = 16
PARTNER = (torch.arange(2 * ROWS) + ROWS) % (2 * ROWS)


def found(loss: Tensor) -> dict[str, float]:
    shown = read_graph(loss).misuses
    return {name: value for name, value in shown.items() if name in ("own-row", "equal-views")}


def coded(*views: Tensor, encoder: nn.Module | None = None) -> Tensor:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(8, 12)) if encoder is None else encoder
    return F.normalize(torch.cat([encoder(one) for one in views]), dim=1)


def views() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    rows = torch.randn(ROWS, 8)
    return rows + 0.1 * torch.randn_like(rows), rows + 0.1 * torch.randn_like(rows)


def test_the_diagonal_is_a_wrong_choice() -> None:
    z = coded(*views())
    assert found(F.cross_entropy(z @ z.T / 0.5, PARTNER)) == {"own-row": 1.0}


def test_a_masked_diagonal() -> None:
    z = coded(*views())
    eye = torch.eye(2 * ROWS, dtype=torch.bool)
    assert found(F.cross_entropy((z @ z.T / 0.5).masked_fill(eye, -1e9), PARTNER)) == {}
    assert found(F.cross_entropy(z @ z.T / 0.5 - 1e9 * eye.float(), PARTNER)) == {}


def test_equal_views() -> None:
    one, _ = views()
    z, eye = coded(one, one), torch.eye(2 * ROWS, dtype=torch.bool)
    assert found(F.cross_entropy((z @ z.T / 0.5).masked_fill(eye, -1e9), PARTNER)) == {"equal-views": ROWS}
    filled = z @ z.T / 0.5
    filled.fill_diagonal_(-1e9)
    assert found(F.cross_entropy(filled, PARTNER)) == {"equal-views": ROWS}
    turned, by_turns = z.view(2, ROWS, -1).transpose(0, 1).reshape(2 * ROWS, -1), torch.arange(2 * ROWS) ^ 1
    assert found(F.cross_entropy((turned @ turned.T).masked_fill(eye, -1e9), by_turns)) == {"equal-views": ROWS}
    without = (z @ z.T / 0.5)[~eye].view(2 * ROWS, -1)
    partner = torch.cat([torch.arange(ROWS) + ROWS - 1, torch.arange(ROWS)])
    assert found(F.cross_entropy(without, partner)) == {"equal-views": ROWS}
    first, second = coded(one), coded(one)
    assert found(F.cross_entropy(first @ second.T / 0.1, torch.arange(ROWS))) == {"equal-views": ROWS}


def test_different_views_without_the_diagonal() -> None:
    z, eye = coded(*views()), torch.eye(2 * ROWS, dtype=torch.bool)
    partner = torch.cat([torch.arange(ROWS) + ROWS - 1, torch.arange(ROWS)])
    assert found(F.cross_entropy((z @ z.T / 0.5)[~eye].view(2 * ROWS, -1), partner)) == {}


def test_two_towers_and_dropout() -> None:
    one, other = views()
    first, second = coded(one), coded(other)
    assert found(F.cross_entropy(first @ second.T / 0.1, torch.arange(ROWS))) == {}
    noisy = nn.Sequential(nn.Linear(8, 12), nn.Dropout(0.2))
    first, second = coded(one, encoder=noisy), F.normalize(noisy(one), dim=1)
    assert found(F.cross_entropy(first @ second.T / 0.1, torch.arange(ROWS))) == {}


def test_classes() -> None:
    z = coded(*views())
    assert found(F.cross_entropy(nn.Linear(12, 2 * ROWS)(z), PARTNER)) == {}
