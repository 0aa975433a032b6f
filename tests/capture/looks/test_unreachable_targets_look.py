"""Targets beyond the ends of the last operation, and targets that only look so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor

from steadytrain.capture.looks.loss_graph import read_graph

ROWS = 400
BELOW = pytest.approx(0.5, abs=0.1)


def found(loss: Callable[[Tensor, Tensor], Tensor], targets: Tensor | None = None) -> dict[str, float]:
    torch.manual_seed(0)
    scores = torch.nn.Linear(4, 1)(torch.randn(ROWS, 4))
    shown = read_graph(loss(scores, torch.randn(ROWS, 1) if targets is None else targets)).misuses
    return {name: value for name, value in shown.items() if name.startswith("unreachable")}


REGRESSIONS: dict[str, tuple[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "squared error": ("sigmoid", lambda s, y: F.mse_loss(s.sigmoid(), y)),
    "sides exchanged": ("sigmoid", lambda s, y: F.mse_loss(y, s.sigmoid())),
    "huber": ("relu", lambda s, y: F.smooth_l1_loss(s.relu(), y)),
    "magnitudes": ("relu", lambda s, y: F.l1_loss(s.relu(), y)),
    "by hand": ("softplus", lambda s, y: ((F.softplus(s) - y) ** 2).mean()),
    "turned, squeezed and summed": ("relu", lambda s, y: (y[:, 0] - s.relu().squeeze(1)).pow(2).sum()),
    "tanh, far": ("tanh", lambda s, y: F.mse_loss(s.tanh(), 5.0 * y)),
}


@pytest.mark.parametrize("name", REGRESSIONS)
def test_targets_out_of_reach(name: str) -> None:
    operation, loss = REGRESSIONS[name]
    shown = found(loss)
    assert list(shown) == [f"unreachable-{operation}"]
    assert 0.2 < shown[f"unreachable-{operation}"] < 0.9


def test_a_binary_loss_of_other_numbers() -> None:
    masks, signs = torch.tensor([0.0, 255.0]).repeat(ROWS // 2)[:, None], torch.tensor([-1.0, 1.0]).repeat(ROWS // 2)
    both = found(F.binary_cross_entropy_with_logits, masks), found(F.binary_cross_entropy_with_logits, signs[:, None])
    assert both == ({"unreachable-probability": BELOW}, {"unreachable-probability": BELOW})


def uniform(low: float, high: float) -> Tensor:
    return torch.rand(ROWS, 1) * (high - low) + low


def few_far() -> Tensor:
    targets = uniform(0.0, 1.0)
    targets[:3] = 40.0
    return targets


def around_zero() -> Tensor:
    return torch.cat([torch.rand(ROWS // 2, 1) * 4.0, torch.randn(ROWS // 2, 1) * 0.05])


def marked() -> Tensor:
    targets = uniform(0.0, 1.0)
    targets[::4] = -1.0
    return targets


HEALTHY: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[], Tensor]]] = {
    "pixels": (lambda s, y: F.mse_loss(s.sigmoid(), y), lambda: uniform(0.0, 1.0)),
    "ends": (lambda s, y: F.mse_loss(s.tanh(), y), lambda: uniform(0.0, 1.0).round() * 2 - 1),
    "counts": (lambda s, y: F.mse_loss(s.relu(), y), lambda: uniform(0.0, 9.0).round()),
    "a few outliers": (lambda s, y: F.mse_loss(s.sigmoid(), y), few_far),
    "noise around an end": (lambda s, y: F.mse_loss(s.relu(), y), around_zero),
    "scaled after it": (lambda s, y: F.mse_loss(3.0 * s.tanh(), y), lambda: uniform(-3.0, 3.0)),
    "shifted by hand": (lambda s, y: ((s.sigmoid() * 2 - 1 - y) ** 2).mean(), lambda: uniform(-1.0, 1.0)),
    "masked by a code": (lambda s, y: (((s.sigmoid() - y) ** 2) * (y >= 0)).mean(), marked),
    "masked as a loss per element": (lambda s, y: F.mse_loss(s.sigmoid(), y, reduction="none")[y >= 0].mean(), marked),
    "masked before": (lambda s, y: F.mse_loss(s.sigmoid()[y >= 0], y[y >= 0]), marked),
    "weighted": (lambda s, y: F.binary_cross_entropy_with_logits(s, y, weight=(y >= 0).float()), marked),
    "smoothed labels": (F.binary_cross_entropy_with_logits, lambda: uniform(0.7, 1.2)),
    "no last operation": (F.mse_loss, lambda: uniform(-9.0, 9.0)),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_targets_in_reach(name: str) -> None:
    loss, targets = HEALTHY[name]
    torch.manual_seed(1)
    assert found(loss, targets()) == {}
